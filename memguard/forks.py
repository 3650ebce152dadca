"""Which process this is, without a system call: each batch asks ten times whether it runs in a forked child."""

from __future__ import annotations

import os

_pid = os.getpid()


def pid() -> int:
    """The number of this process, as `os.getpid` tells it."""
    return _pid


def _forked() -> None:
    global _pid
    _pid = os.getpid()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
