"""Plain data of a run: statistics, records of batches, claims, findings, summaries. No torch."""
