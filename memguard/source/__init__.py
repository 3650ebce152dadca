"""The text of the user's program, read as a syntax tree, never run: who stores, empties, reads again. No torch."""
