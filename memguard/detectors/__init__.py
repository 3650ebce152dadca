"""What concludes: one file per rule or close family, and the explicit tuple of them all."""
