"""Programs run plain and guarded: what they print, return, write and train must be the same."""
