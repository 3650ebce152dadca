"""The process's clocks as they were when memguard was imported. No torch.

A test that patches ``time.perf_counter`` with a list of answers means its own reader of the clock, not memguard too.
"""

from time import monotonic, perf_counter, sleep, thread_time, time_ns
from time import time as now

__all__ = ["monotonic", "now", "perf_counter", "sleep", "thread_time", "time_ns"]
