"""The allocation history of torch's CUDA allocator: switched on and off for us, while the user's own is left alone.

Private names of torch (checked with 2.11, 2.13 and 2.15): ``torch.cuda.memory._record_memory_history``, ``_snapshot``,
``torch._C._cuda_isHistoryEnabled``.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, ClassVar, cast, final

import torch

if TYPE_CHECKING:
    from memguard.backends.virtual import VirtualBackend


@final
class CudaHistory:
    """One recording of ours. There is one history in a process, so it is ours only as long as nobody else asks for one.

    Whoever else calls torch's function while ours is on, to begin a recording or to end any, takes it over: it is
    theirs from then on, and not ours to end.

    A recording of ours without stacks, kept in reserve while memory is scarce, gives way to one of ours with stacks.
    """

    _in_reserve: ClassVar[CudaHistory | None] = None
    """Who records without stacks now."""

    def __init__(self) -> None:
        self._original: Any = None
        self._standin: Any = None
        self._taken = False

    @property
    def records_history(self) -> bool:
        """Whether a history is recorded now, by anybody but another of ours that gives way to this one."""
        is_on = getattr(torch._C, "_cuda_isHistoryEnabled", None)
        reserve = CudaHistory._in_reserve
        gives_way = reserve is not None and reserve is not self and not reserve._taken
        return bool(is_on()) and not gives_way if is_on is not None else False

    def record_history(self, enabled: bool, max_entries: int = 0, *, context: str | None = "alloc") -> None:
        """Switches it on with Python stacks, or off what was switched on here; nothing happens without CUDA in use.

        Args:
            enabled: Whether to begin; where somebody records already, nothing is begun.
            max_entries: Events that are kept.
            context: Of which events stacks are taken: ``"alloc"``, ``"all"`` or None.
        """
        if not enabled:
            self._end()
        elif torch.cuda.is_initialized() and not self.records_history and self._standin is None:
            reserve, CudaHistory._in_reserve = CudaHistory._in_reserve, None if context else self
            if reserve is not None:
                reserve._end()
            memory: Any = torch.cuda.memory
            record = memory._record_memory_history
            record(enabled="all", context=context, stacks="python", max_entries=max_entries)
            self._original, self._standin = record, self._noticing(record)
            memory._record_memory_history = self._standin

    def snapshot(self) -> dict[str, Any]:
        """The trace so far; empty where CUDA is not in use."""
        return dict(torch.cuda.memory._snapshot()) if torch.cuda.is_initialized() else {}

    def _noticing(self, record: Any) -> Any:
        self._taken = False

        @functools.wraps(record)
        def _record_memory_history(*args: Any, **kwargs: Any) -> Any:
            self._taken = True
            return record(*args, **kwargs)

        return _record_memory_history

    def _end(self) -> None:
        if CudaHistory._in_reserve is self:
            CudaHistory._in_reserve = None
        record, self._original = self._original, None
        standin, self._standin = self._standin, None
        if record is None:
            return
        memory: Any = torch.cuda.memory
        if memory._record_memory_history is standin:
            memory._record_memory_history = record
        if not self._taken:
            record(enabled=None)


def choose_history(device: str, backend: object) -> CudaHistory | VirtualBackend | None:
    """Who writes the history of a device: its backend, torch's allocator, or nobody.

    Of ``"auto"`` it is not known yet which device it will be, and CUDA's may be it.
    """
    if hasattr(backend, "record_history") and hasattr(backend, "snapshot"):
        return cast("VirtualBackend", backend)
    known = all(hasattr(torch.cuda.memory, name) for name in ("_record_memory_history", "_snapshot"))
    return CudaHistory() if device.startswith(("cuda", "auto")) and known else None
