"""The process's own memory: for training on the CPU, and for data loading anywhere, the kernel is who runs out."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, final

import psutil

from memguard.backends.interface import Backend
from memguard.clocks import monotonic
from memguard.forks import process
from memguard.records.stats import MemoryStats, SlowStats

_LINUX = sys.platform == "linux"
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
_UNKNOWN = MemoryStats()


@final
class HostMemory:
    """Resident memory of this process, cheap enough for every batch; the rest of the host's memory for the slow lane.

    Args:
        proc: The proc file system; tests bring their own.
        clock: Seconds, for the pace of dear readings.
    """

    def __init__(self, *, proc: Path = Path("/proc"), clock: Callable[[], float] = monotonic) -> None:
        self._proc = proc
        self._statm = -1
        self._pid = process.pid
        self._children = ChildrenMemory(proc=proc, clock=clock)

    def install(self) -> None:
        """Keeps a file of the kernel's open, so that `rss_bytes` takes 1 us."""
        if _LINUX and self._statm < 0:
            try:
                self._statm = os.open(self._proc / "self" / "statm", os.O_RDONLY)
            except OSError:
                pass  # `rss_bytes` asks psutil instead

    def remove(self) -> None:
        """Closes that file."""
        descriptor, self._statm = self._statm, -1
        if descriptor >= 0:
            with contextlib.suppress(OSError):  # it was only read
                os.close(descriptor)

    def rss_bytes(self) -> int | None:
        """Resident memory of this process. None in a forked child, where an open file is the parent's."""
        if process.pid != self._pid:
            return None
        try:
            descriptor = self._statm
            if descriptor >= 0:
                return int(os.pread(descriptor, 128, 0).split(None, 2)[1]) * _PAGE_BYTES
            if _LINUX:
                return int((self._proc / "self" / "statm").read_bytes().split(None, 2)[1]) * _PAGE_BYTES
            return int(psutil.Process().memory_info().rss)
        except (OSError, IndexError, ValueError, psutil.Error):  # unknown is None; the next reading tries again
            return None

    def read_slow(self) -> SlowStats:
        """All that the host tells; about a millisecond, so for the slow lane."""
        limit = self.limit()
        children = self._children.read()
        shm_free, shm_total = _shared_memory()
        return SlowStats(
            host_rss_bytes=self.rss_bytes(),
            host_rss_peak_bytes=self._rss_peak_bytes(),
            host_limit_bytes=limit.limit_bytes,
            host_used_bytes=limit.used_bytes,
            host_available_bytes=limit.available_bytes,
            workers_rss_bytes=children.private_bytes,
            num_workers=children.number,
            shm_free_bytes=shm_free,
            shm_total_bytes=shm_total,
            open_files=self._open_files(),
        )

    def limit(self) -> HostLimit:
        """What the kernel would kill this process at, and how near that is."""
        return host_limit(self._proc)

    def _rss_peak_bytes(self) -> int | None:
        try:
            _, found, after = (self._proc / "self" / "status").read_bytes().partition(b"\nVmHWM:")
            if found:
                return int(after.split(None, 1)[0]) * 1024
        except (OSError, IndexError, ValueError):
            pass  # no Linux: getrusage is asked next
        try:
            import resource
        except ImportError:  # Windows
            return getattr(psutil.Process().memory_info(), "peak_wset", None)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024

    def _open_files(self) -> int | None:
        try:
            return len(os.listdir(self._proc / "self" / "fd")) - 1 if _LINUX else int(psutil.Process().num_fds())
        except (OSError, AttributeError, psutil.Error):  # not told here (Windows counts no descriptors)
            return None


@final
class HostBackend(Backend):
    """Training on the CPU: no allocator keeps count, so `read` knows nothing and the host's numbers stand alone.

    A batch's RSS is in its record whatever the backend; its peak is not known, only the highest sample.

    Args:
        host: The process's memory; None makes one.
    """

    def __init__(self, host: HostMemory | None = None) -> None:
        self._host = host if host is not None else HostMemory()

    @property
    def device(self) -> str:
        """``"cpu"``."""
        return "cpu"

    @property
    def name(self) -> str | None:
        """The processor's name, where Linux tells it."""
        return _processor_name()

    @property
    def total_bytes(self) -> int | None:
        """What the kernel would kill this process at."""
        return self._host.limit().limit_bytes

    @property
    def measures_peaks(self) -> bool:
        """No: memory of the host is sampled."""
        return False

    def read(self) -> MemoryStats:
        """Unknown: PyTorch does not count what its tensors take on the CPU."""
        return _UNKNOWN

    def boundary(self) -> MemoryStats:
        """Unknown likewise."""
        return _UNKNOWN

    def mark(self) -> object:
        """Nothing: what `stats` tells of it is unknown."""
        return None

    def stats(self, mark: object) -> MemoryStats:
        """Unknown."""
        return _UNKNOWN

    def read_slow(self) -> SlowStats:
        """Memory of the process, of its workers and of the host."""
        return self._host.read_slow()


def _shared_memory() -> tuple[int | None, int | None]:
    """Free and total bytes of /dev/shm, through which DataLoader workers hand over tensors."""
    try:
        shm = os.statvfs("/dev/shm")
    except (OSError, AttributeError):  # no /dev/shm, as on macOS and Windows
        return None, None
    return shm.f_bavail * shm.f_frsize, shm.f_blocks * shm.f_frsize


def _processor_name() -> str | None:
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
            for line in lines:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip() or None
    except OSError:
        pass  # no Linux: the name stays unknown
    return None


# The limit at which the kernel kills this process: that of a control group above it, or all RAM.

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


# Private memory of the child processes: DataLoader workers, whose copies of the dataset grow with each access.

_SHARE = 0.01


class Children(NamedTuple):
    """The children of this process; None is unknown."""

    number: int | None = None
    private_bytes: int | None = None


@final
class ChildrenMemory:
    """The private memory of all children together, read at its own pace.

    What a forked worker shares with its parent is not counted: pages copied on write are what grows, and only
    ``smaps_rollup`` tells them apart. That takes the kernel milliseconds a worker, so a reading is repeated only after
    a hundred times its own duration.
    """

    def __init__(self, *, proc: Path = Path("/proc"), clock: Callable[[], float] = monotonic) -> None:
        self._proc, self._clock = proc, clock
        self._last = Children()
        self._pids: frozenset[int] | None = None
        self._again = 0.0

    def read(self) -> Children:
        """The newest reading; a new one if it is time, or if children came or went."""
        began = self._clock()
        pids = self._child_pids()
        if pids is None:
            return Children()
        if pids == self._pids and began < self._again:
            return self._last
        sizes = [size for pid in pids if (size := self._private_bytes(pid)) is not None]
        self._last = Children(len(pids), sum(sizes) if sizes or not pids else None)
        self._pids = pids
        ended = self._clock()
        self._again = ended + (ended - began) / _SHARE
        return self._last

    def _child_pids(self) -> frozenset[int] | None:
        """Process ids of the children; from the kernel's own list where it keeps one: psutil looks at all."""
        pids: set[int] = set()
        try:
            for task in os.listdir(self._proc / "self" / "task"):
                try:
                    pids.update(map(int, (self._proc / "self" / "task" / task / "children").read_bytes().split()))
                except ProcessLookupError:
                    pass  # a thread that ended meanwhile
            return frozenset(pids)
        except (OSError, ValueError):  # no Linux, or a kernel without that list: psutil is asked next
            pass
        try:
            return frozenset(child.pid for child in psutil.Process().children())
        except (psutil.Error, OSError):  # psutil lists /proc as well
            return None

    def _private_bytes(self, pid: int) -> int | None:
        try:
            lines = (self._proc / str(pid) / "smaps_rollup").read_bytes().splitlines()
            return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(b"Private_"))
        except (OSError, IndexError, ValueError):
            pass  # an old kernel, or the worker ended meanwhile: psutil is asked next
        try:
            memory = psutil.Process(pid).memory_info()
        except (psutil.Error, OSError):  # the worker ended meanwhile, or is not ours to read
            return None
        return int(memory.rss - getattr(memory, "shared", 0))
