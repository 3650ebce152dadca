"""The end of a run that went out of memory: noticed on every way out, explained, and never changed."""
