"""The process's own memory: for training on the CPU, and for data loading anywhere, the kernel is who runs out."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import final

import psutil

from memguard.backends.cgroup import HostLimit, host_limit
from memguard.backends.children import ChildrenMemory
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
