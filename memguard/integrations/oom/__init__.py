"""An out-of-memory error: noticed on every way out, explained, never changed."""
