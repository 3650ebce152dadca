"""One file for each sub-command of `memguard`: `add` builds its parser, `run` does it and returns the exit code."""
