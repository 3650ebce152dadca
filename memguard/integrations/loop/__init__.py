"""Batches of a loop that does not announce them: derived from forwards, backwards and steps."""
