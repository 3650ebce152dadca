"""The virtual GPU: all tensors of the process on a simulated device with PyTorch's allocator."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any, Final, final

import torch
from torch.utils._python_dispatch import _get_current_dispatch_mode

from memguard.allocator import CachingAllocator, OutOfMemory
from memguard.allocator.config import AllocatorConfig
from memguard.backends.host import HostMemory
from memguard.backends.interface import Backend
from memguard.backends.step_trace import StepTrace
from memguard.backends.storages import StorageResizes, Storages
from memguard.backends.virtual_mode import EnteredMode, VirtualMode
from memguard.clocks import time_ns
from memguard.records.stats import MemoryStats, SlowStats
from memguard.text.units import GIB, MIB
from memguard.torch_objects.storages import unheard

_OURS, _TORCH = Path(__file__).parents[1], Path(torch.__file__).parent
_NOT_THE_CALLER: Final = tuple(
    map(str, (_OURS / "backends", _OURS / "allocator", _TORCH / "_compile.py", _TORCH / "_dynamo", _TORCH / "_ops.py"))
)
"""Between the allocator and the line that called an operator."""
_MOST_FRAMES: Final = 120
Frame = dict[str, Any]


@final
class History:
    """A bounded ring of allocator events with stacks; of which it hears while it is on."""

    def __init__(self) -> None:
        self._enabled = False
        self._events: deque[dict[str, Any]] = deque(maxlen=0)
        self._stacks: dict[int, list[Frame]] = {}
        self._frames: dict[tuple[str, int, str], Frame] = {}
        """Each frame once, as PyTorch's own snapshots have it: thousands of stacks share a few hundred."""

    @property
    def enabled(self) -> bool:
        """Whether it is on."""
        return self._enabled

    def record(self, enabled: bool, max_entries: int) -> None:
        """Switches the history on with room for so many events, or off, which forgets everything."""
        self._enabled = enabled
        self._events = deque(self._events if enabled else (), maxlen=max_entries if enabled else 0)
        if not enabled:
            self._stacks.clear()
            self._frames.clear()

    def hear(self, action: str, address: int, nbytes: int, stream: int) -> None:
        """Notes one event of the allocator."""
        frames: list[Frame] = []
        if action == "alloc":
            frames = self._stacks[address] = self._stack()
        elif action == "free_requested":
            frames = self._stacks.get(address, [])
        elif action == "free_completed":
            frames = self._stacks.pop(address, [])
        elif action in ("oom", "segment_alloc", "segment_map"):
            frames = self._stack()
        event = {
            "action": action,
            "addr": address,
            "size": nbytes,
            "stream": stream,
            "time_us": time_ns() // 1000,
            "compile_context": "N/A",
            "user_metadata": "",
            "frames": frames,
        }
        if action == "oom":
            event["device_free"] = event.pop("addr")
        self._events.append(event)

    def complete(self, snapshot: dict[str, Any]) -> dict[str, Any]:
        """The allocator's snapshot with the stacks of its blocks and the trace."""
        for segment in snapshot["segments"]:
            for block in segment["blocks"]:
                if block["state"] != "inactive":
                    block["frames"] = self._stacks.get(block["address"], [])
        snapshot["device_traces"] = [list(self._events)]
        return snapshot

    def _stack(self) -> list[Frame]:
        """The Python stack, innermost first, from the line that called the operator; no frame is kept alive."""
        frame: FrameType | None = sys._getframe(2)
        while frame is not None and frame.f_code.co_filename.startswith(_NOT_THE_CALLER):
            frame = frame.f_back
        frames: list[Frame] = []
        while frame is not None and len(frames) < _MOST_FRAMES:
            code = frame.f_code
            key = (code.co_filename, frame.f_lineno, code.co_name)
            known = self._frames.get(key)
            if known is None:
                known = self._frames[key] = {"filename": key[0], "line": key[1], "name": key[2]}
            frames.append(known)
            frame = frame.f_back
        return frames


logger = logging.getLogger("memguard")

_CONF_VARIABLES = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")


@final
class VirtualBackend(Backend):
    """A GPU of any size on any machine, exact and deterministic, at some microseconds an operator.

    Between `install` and `remove`, the storages of this process's CPU tensors drive the simulated allocator: those made
    before too, and those of DataLoader workers and other threads from the first operator of the installing thread that
    uses them. When they no longer fit, the operator raises ``torch.OutOfMemoryError`` with PyTorch's text. What is
    different from a CUDA device stands in docs/virtual-gpu.md.

    Args:
        total_bytes: Capacity of the device.
        conf: The allocator's settings, as in ``PYTORCH_CUDA_ALLOC_CONF``; by default that variable, else
            ``PYTORCH_ALLOC_CONF``.
        host: The process's own memory, for the slow lane.

    Raises:
        ValueError: `conf` is not valid.
    """

    def __init__(self, total_bytes: int, *, conf: str | None = None, host: HostMemory | None = None) -> None:
        if conf is None:
            conf = next((os.environ[name] for name in _CONF_VARIABLES if os.environ.get(name)), "")
        self._history = History()
        self._allocator = CachingAllocator(total_bytes, conf)
        self._host = host if host is not None else HostMemory()
        self._storages = Storages(self._allocator)
        self._mode: VirtualMode | None = None
        self._entered = threading.local()
        """Whether this thread's operators are followed: a number of its own a thread may have from one before it."""
        self._resizes = StorageResizes(self._storages)
        self._peaks: dict[str, int] = {}
        self.expandable = AllocatorConfig.parse(conf).expandable_segments
        """Whether segments are expandable."""
        self.on_out_of_memory: Callable[[], None] | None = None
        """Called just before an operator raises for want of memory, also where the program catches that."""

    @property
    def device(self) -> str:
        """Like ``"virtual:24GiB"``."""
        total = self._allocator.total_bytes
        for unit, nbytes in (("GiB", GIB), ("MiB", MIB)):
            if total % nbytes == 0:
                return f"virtual:{total // nbytes}{unit}"
        return f"virtual:{total}"

    @property
    def name(self) -> str:
        """What it is."""
        return "virtual GPU"

    @property
    def total_bytes(self) -> int:
        """The capacity it was given."""
        return self._allocator.total_bytes

    def install(self) -> None:
        """Counts the tensors there are, and follows from now on what the calling thread's operators do.

        Raises:
            torch.OutOfMemoryError: The tensors there are do not fit.
        """
        if self._mode is not None:
            return
        try:
            with unheard():
                self._storages.see_existing()
        except OutOfMemory as error:
            text = str(error)
        else:
            self._mode = VirtualMode(self._storages, self._failing)
            self._entered = threading.local()
            self.follow_thread()
            self._resizes.install()
            return
        raise torch.OutOfMemoryError(text)

    def follow_thread(self) -> None:
        """Follows what the calling thread's operators do too, until that thread ends."""
        if self._mode is not None and not hasattr(self._entered, "mode"):
            self._entered.mode = EnteredMode(self._mode)

    def remove(self) -> None:
        """Follows nothing any more; the last numbers stay readable."""
        mode, self._mode = self._mode, None
        if mode is None:
            return
        mode.close()
        self._resizes.remove()
        # Devices may go in any order: the mode of one that went underneath another's goes with the last.
        while type(top := _get_current_dispatch_mode()) is VirtualMode and not top.is_open:
            top.__exit__(None, None, None)  # type: ignore[no-untyped-call]
        self._storages.settle()
        self._storages.clear()

    def include(self, tensors: Iterable[torch.Tensor]) -> None:
        """Counts tensors that no operator of the installing thread has touched yet, as those another thread made.

        Raises:
            torch.OutOfMemoryError: They do not fit.
        """
        try:
            for tensor in tensors:
                self._storages.see_whole(tensor)
            return
        except OutOfMemory as error:
            text = str(error)
        raise torch.OutOfMemoryError(text)

    def holds(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor takes memory of this device; that which did not fit takes none.

        Raises:
            RuntimeError: The tensor cannot be asked for its storage.
        """
        return self._storages.holds(tensor)

    def read(self) -> MemoryStats:
        """One look."""
        self._storages.settle()
        return _as_memory_stats(self._allocator.stats())

    def boundary(self) -> MemoryStats:
        """One look; the peaks start anew. Who asks is the one that trains."""
        self.follow_thread()
        stats = self.cut()
        self._storages.trace.boundary()
        return stats

    def cut(self) -> MemoryStats:
        """The same, of whatever thread, and not for the trace of batches."""
        self._storages.settle()
        stats = self._allocator.stats()
        self._keep_peaks(stats)
        self._allocator.reset_peak_stats()
        return _as_memory_stats(stats)

    def read_slow(self) -> SlowStats:
        """Memory of the host, and of the virtual device, where nobody else is."""
        used = self._allocator.reserved_bytes
        slow = self._host.read_slow()
        return replace(
            slow,
            device_total_bytes=self.total_bytes,
            device_used_bytes=used,
            process_used_bytes=used,
            process_reserved_bytes=used,
        )

    def empty_cache(self) -> int:
        """Gives the segments without a tensor back to the virtual driver."""
        self._storages.settle()
        before = self._allocator.reserved_bytes
        self._allocator.empty_cache()
        return before - self._allocator.reserved_bytes

    def memory_stats(self) -> dict[str, int]:
        """All statistics under the keys of ``torch.cuda.memory_stats``; peaks are those since the device was made."""
        self._storages.settle()
        stats = self._allocator.stats()
        self._keep_peaks(stats)
        return stats | self._peaks

    @property
    def records_history(self) -> bool:
        """Whether the allocation history is on."""
        return self._history.enabled

    def record_history(self, enabled: bool, max_entries: int = 100_000) -> None:
        """Switches the allocation history on or off, as ``torch.cuda.memory._record_memory_history``."""
        self._history.record(enabled, max_entries)
        self._allocator.listen(self._history.hear if enabled else None)

    def snapshot(self) -> dict[str, Any]:
        """The device's state, and its trace while history is on, as ``torch.cuda.memory._snapshot``."""
        self._storages.settle()
        return self._history.complete(self._allocator.snapshot())

    @property
    def trace(self) -> StepTrace:
        """What the newest batches asked for."""
        return self._storages.trace

    @property
    def uses(self) -> Storages:
        """When operators took each storage."""
        return self._storages

    @property
    def conf(self) -> str:
        """The allocator's settings, as in ``PYTORCH_CUDA_ALLOC_CONF``."""
        return self._allocator.conf

    @property
    def failed_bytes(self) -> int | None:
        """What the virtual driver was last asked for in vain."""
        return self._mode.failed_bytes if self._mode is not None else None

    def _failing(self) -> None:
        if self.on_out_of_memory is None:
            return
        try:
            self.on_out_of_memory()
        except Exception as error:  # as text: a traceback that is kept keeps tensors
            self.on_out_of_memory = None
            logger.error("memguard: an out-of-memory listener failed and is switched off: %r", error)

    def _keep_peaks(self, stats: dict[str, int]) -> None:
        for key, value in stats.items():
            if key.endswith(".peak"):
                self._peaks[key] = max(value, self._peaks.get(key, 0))


def _as_memory_stats(stats: dict[str, int]) -> MemoryStats:
    return MemoryStats(
        allocated_bytes=stats["allocated_bytes.all.current"],
        allocated_peak_bytes=stats["allocated_bytes.all.peak"],
        reserved_bytes=stats["reserved_bytes.all.current"],
        reserved_peak_bytes=stats["reserved_bytes.all.peak"],
        active_bytes=stats["active_bytes.all.current"],
        active_peak_bytes=stats["active_bytes.all.peak"],
        inactive_split_bytes=stats["inactive_split_bytes.all.current"],
        num_alloc_retries=stats["num_alloc_retries"],
        num_ooms=stats["num_ooms"],
        num_device_alloc=stats["num_device_alloc"],
        num_device_free=stats["num_device_free"],
    )
