"""Front doors: each translates its host's hooks to the recorder's events."""

import sys

from memguard.clocks import perf_counter

LOADING_BEGAN = perf_counter() if "torch" in sys.modules else None
"""When a front door began to load memguard's modules; None where that loads torch as well, which is not memguard's."""
