"""The limit at which the kernel kills this process: that of a control group above it, or all RAM."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import psutil

_UNLIMITED = 1 << 60
"""cgroup v1 writes no limit as a number near 2**63."""


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

    Args:
        proc: The proc file system.
        groups: Where control groups are mounted.

    Returns:
        The limit and its use, page cache that the kernel can drop not counted.
    """
    memory = psutil.virtual_memory()
    limits = [HostLimit(memory.total, memory.total - memory.available), *_group_limits(proc, groups)]
    return min(limits, key=lambda limit: limit.available_bytes if limit.available_bytes is not None else _UNLIMITED)


def _group_limits(proc: Path, groups: Path) -> list[HostLimit]:
    """The limits of the process's group and of all groups above it, version 1 or 2."""
    try:
        lines = (proc / "self" / "cgroup").read_text().splitlines()
    except OSError:
        return []
    limits = []
    for line in lines:
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            root, names = groups, ("memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            root, names = groups / "memory", ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        else:
            continue
        # In a container the path may be one of the host's that is not mounted here: then its parents fit.
        folder = root if ".." in path else root / path.strip("/")
        while True:
            if (limit := _read_group(folder, *names)) is not None:
                limits.append(limit)
            if folder == root:
                break
            folder = folder.parent
    return limits


def _read_group(folder: Path, limit_name: str, used_name: str, cache_name: str) -> HostLimit | None:
    try:
        limit = int((folder / limit_name).read_text())  # "max" is no number: no limit here
        used = int((folder / used_name).read_text())
        stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):
        return None
    return HostLimit(limit, max(used - int(stat.get(cache_name, 0)), 0)) if limit < _UNLIMITED else None
