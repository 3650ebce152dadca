"""`torch.cuda.memory_allocated` and its sisters for whatever device is guarded, the virtual GPU included."""

from __future__ import annotations

from memguard.errors import MemGuardError
from memguard.integrations.session import open_sessions
from memguard.records.stats import MemoryStats


def memory_allocated() -> int:
    """Bytes of tensors on the guarded device now, like ``torch.cuda.memory_allocated`` for CUDA.

    Raises:
        MemGuardError: No guard is open, or the device does not report it.
    """
    return _known(_read().allocated_bytes, "allocated bytes")


def memory_reserved() -> int:
    """Bytes that PyTorch's allocator holds on the guarded device now, its cache included; ``memory_reserved`` of CUDA.

    Raises:
        MemGuardError: No guard is open, or the device does not report it.
    """
    return _known(_read().reserved_bytes, "reserved bytes")


def max_memory_allocated() -> int:
    """The most bytes of tensors on the guarded device since the guard began, all batches together.

    ``torch.cuda.max_memory_allocated`` counts from its last reset instead.

    Raises:
        MemGuardError: No guard is open, or the device does not report it.
    """
    now = _known(_read().allocated_peak_bytes, "peak of allocated bytes")
    return max(now, open_sessions()[-1].recorder.summary.peak.allocated_bytes or 0)


def max_memory_reserved() -> int:
    """The most bytes that PyTorch's allocator held on the guarded device since the guard began.

    Raises:
        MemGuardError: No guard is open, or the device does not report it.
    """
    now = _known(_read().reserved_peak_bytes, "peak of reserved bytes")
    return max(now, open_sessions()[-1].recorder.summary.reserved_peak_bytes or 0)


def _read() -> MemoryStats:
    sessions = open_sessions()
    if not sessions:
        raise MemGuardError("no guard is open: ask inside memguard.watch(...), or after memguard.wrap(model)")
    return sessions[-1].backend.read()


def _known(nbytes: int | None, what: str) -> int:
    if nbytes is None:
        device = open_sessions()[-1].backend.device
        raise MemGuardError(f"the device {device} reports no {what}; a virtual one does: device='virtual:24GiB'")
    return nbytes
