"""A run on disk: its format, its writer, its reader. No torch."""
