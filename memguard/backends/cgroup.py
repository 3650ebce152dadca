"""The limit at which the kernel kills this process: that of a control group above it, or all RAM."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import psutil

_UNLIMITED = 1 << 60
"""cgroup v1 writes no limit as a number near 2**63."""
_MOST_BYTES = 1 << 16


class HostLimit(NamedTuple):
    """A limit of host memory and its use, in bytes; None is unknown."""

    limit_bytes: int | None = None
    used_bytes: int | None = None

    @property
    def available_bytes(self) -> int | None:
        """What is left under the limit."""
        if self.limit_bytes is None or self.used_bytes is None:
            return None
        return max(self.limit_bytes - self.used_bytes, 0)


def host_limit(proc: Path = Path("/proc"), groups: Path = Path("/sys/fs/cgroup")) -> HostLimit:
    """The limit that this process will meet first: of all groups it is in, and of the machine, that with least left.

    Returns:
        The limit and its use, page cache that the kernel can drop not counted.
    """
    memory = psutil.virtual_memory()
    limits = [HostLimit(memory.total, memory.total - memory.available), *_group_limits(proc, groups)]
    return min(limits, key=lambda limit: limit.available_bytes if limit.available_bytes is not None else _UNLIMITED)


def _group_limits(proc: Path, groups: Path) -> list[HostLimit]:
    """The limits of the process's group and of all groups above it, version 1 or 2."""
    try:
        lines = _read(f"{proc}/self/cgroup").decode().splitlines()
    except (OSError, ValueError):  # no Linux: the host has the only limit
        return []
    limits: list[HostLimit] = []
    for line in lines:
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            root, names = str(groups), ("memory.max", "memory.current", b"inactive_file")
        elif "memory" in controllers.split(","):
            root, names = f"{groups}/memory", ("memory.limit_in_bytes", "memory.usage_in_bytes", b"total_inactive_file")
        else:
            continue
        # In a container the path may be one of the host's that is not mounted here: then its parents fit.
        parts = [] if ".." in path else [part for part in path.split("/") if part]
        folders = ["/".join([root, *parts[:depth]]) for depth in range(len(parts), -1, -1)]
        limits += [limit for folder in folders if (limit := _read_group(folder, *names)) is not None]
    return limits


def _read_group(folder: str, limit_name: str, used_name: str, cache_name: bytes) -> HostLimit | None:
    """One group's limit, if it has one; most have none, and then nothing else is read."""
    try:
        limit = int(_read(f"{folder}/{limit_name}"))  # "max" is no number: no limit here
        if limit >= _UNLIMITED:
            return None
        used = int(_read(f"{folder}/{used_name}"))
        _, found, after = (b"\n" + _read(f"{folder}/memory.stat")).partition(b"\n" + cache_name + b" ")
        cache = int(after.split(None, 1)[0]) if found else 0
    except (OSError, ValueError, IndexError):  # no limit here, or not ours to read
        return None
    return HostLimit(limit, max(used - cache, 0))


def _read(path: str) -> bytes:
    """A small file of the kernel's; plain calls, because the slow lane reads some of them every second."""
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    try:
        return os.read(descriptor, _MOST_BYTES)
    finally:
        os.close(descriptor)
