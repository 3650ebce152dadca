"""The user's source as a syntax tree, never run: stores, resets, reads. No torch."""
