"""Owners of memory after an out-of-memory error."""
