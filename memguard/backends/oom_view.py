"""What a device shows when its memory has run out: blocks, free pieces, settings, history.

Private name of torch (checked with 2.13 and 2.15): ``torch.cuda.memory._snapshot``.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, final

import torch

from memguard.backends.auto import AutoBackend
from memguard.backends.cuda import CudaBackend, allocator_settings
from memguard.backends.cuda_history import CudaHistory
from memguard.backends.interface import Backend

if TYPE_CHECKING:
    from memguard.postmortem.scene import Request, Steps

HISTORY_ENTRIES = 20_000
Heard = Callable[[int | None, int | None], None]
"""Called with the bytes asked of the driver and what it has left, while the allocator is failing."""


class OomView:
    """A device whose memory has run out. This one serves every device of which only the statistics are known."""

    expandable: bool | None = None
    """Whether segments are expandable; None where there are none, or it is not known."""
    expandable_supported = False

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._index: int | None = None
        self._kind = backend.device.partition(":")[0]

    @property
    def device(self) -> str:
        """Like ``"cuda:0"``."""
        return self._backend.device

    def holds(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor lies on this device."""
        return tensor.device.type == self._kind

    def listen(self, heard: Heard) -> bool:
        """Asks to be told while an allocation fails; whether that can be told (yet)."""
        return False

    def ignore(self) -> None:
        """Is told no more."""

    def record_history(self, *, stacks: bool = True) -> bool:
        """Switches the allocation history on; whether there is one.

        Args:
            stacks: Whether each allocation's stack is recorded; a replay needs none.
        """
        return False

    def stop_history(self) -> None:
        """Switches off what `record_history` switched on."""

    def snapshot(self) -> dict[str, Any] | None:
        """The device's blocks in PyTorch's snapshot format, with the trace where history is on."""
        return None

    def forward(self) -> None:
        """A root model is called."""

    def steps(self) -> Steps | None:
        """What the newest batches asked for; None where the device does not tell."""
        return None

    @property
    def conf(self) -> str:
        """The allocator's settings; empty where they are not known."""
        return ""

    def request(self, requested_bytes: int | None, free_bytes: int | None, snapshot: dict[str, Any] | None) -> Request:
        """The failed allocation, and the memory there was for it."""
        from memguard.postmortem.scene import Request

        stats, slow = self._backend.read(), self._backend.read_slow()
        limit, reserved = self._backend.limit_bytes, stats.reserved_bytes
        if free_bytes is None:
            free_bytes = self.free_bytes(limit, reserved)
        elif limit is not None and reserved is not None:
            free_bytes = min(free_bytes, max(limit - reserved, 0))
        pieces, largest = free_pieces(snapshot, self._index)
        private, largest_private = free_pieces(snapshot, self._index, private=True)
        others = slow.other_processes or ()
        return Request(
            requested_bytes=requested_bytes,
            limit_bytes=limit,
            free_bytes=free_bytes,
            allocated_bytes=stats.allocated_bytes,
            reserved_bytes=reserved,
            pieces_bytes=pieces,
            largest_piece_bytes=largest,
            private_free_bytes=private,
            largest_private_bytes=largest_private,
            others=others,
            others_bytes=sum(nbytes or 0 for _, nbytes in others) or None,
        )

    def free_bytes(self, limit: int | None, reserved: int | None) -> int | None:
        """What the driver has left for this process."""
        return max(limit - reserved, 0) if limit is not None and reserved is not None else None


@final
class CudaView(OomView):
    """A CUDA device: the guarded one, or whichever of the process's devices failed last."""

    def __init__(self, backend: CudaBackend) -> None:
        super().__init__(backend)
        self._guarded = backend
        self._index = self._own_index = int(backend.device.partition(":")[2] or 0)
        self._heard: Heard | None = None
        self._history = CudaHistory()
        self._listener = self._hear
        settings = allocator_settings()
        native = torch.cuda.get_allocator_backend() == "native"
        self.expandable = "expandable_segments:true" in settings if native else None
        self.expandable_supported = native and sys.platform == "linux"

    def holds(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor lies on this device."""
        return tensor.device.type == "cuda" and tensor.device.index == self._index

    def listen(self, heard: Heard) -> bool:
        """Is told by the allocator's own observer."""
        self._heard = heard
        return listen(self._listener)

    def ignore(self) -> None:
        """Is told no more."""
        ignore(self._listener)
        self._heard = None

    def _hear(self, device: int, requested_bytes: int, total_bytes: int, free_bytes: int) -> None:
        if self._heard is not None:
            self._index = device
            self._backend = self._guarded if device == self._own_index else CudaBackend(device, peaks="off")
            self._heard(requested_bytes, free_bytes)

    def record_history(self, *, stacks: bool = True) -> bool:
        """Switches the allocation history on, unless it is on already: the user's own is left alone."""
        self._history.record_history(True, HISTORY_ENTRIES, context="all" if stacks else None)
        return True

    def stop_history(self) -> None:
        """Switches off what `record_history` switched on."""
        self._history.record_history(False)

    def snapshot(self) -> dict[str, Any] | None:
        """The blocks; without traces it takes a third of a millisecond for a thousand blocks."""
        if self._backend.read().reserved_bytes is None:
            return None
        if self._history.records_history:
            traced: dict[str, Any] = torch.cuda.memory._snapshot()
            return traced
        try:
            segments = torch.cuda.memory.memory_snapshot(include_traces=False)
        except TypeError:  # before 2.11
            segments = torch.cuda.memory.memory_snapshot()
        settings = {"PYTORCH_CUDA_ALLOC_CONF": allocator_settings()}
        return {"segments": segments, "device_traces": [], "allocator_settings": settings}

    def free_bytes(self, limit: int | None, reserved: int | None) -> int | None:
        """What the driver has left for this process."""
        free = int(torch.cuda.mem_get_info(self._index)[0])
        return free if limit is None or reserved is None else min(free, max(limit - reserved, 0))


@final
class VirtualView(OomView):
    """A virtual GPU."""

    def __init__(self, backend: Any) -> None:
        super().__init__(backend)
        self._virtual = backend
        self._recording = False
        self.expandable = bool(backend.expandable)
        self.expandable_supported = True

    def holds(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor has a block on it; the one that did not fit has none."""
        return bool(self._virtual.holds(tensor))

    def listen(self, heard: Heard) -> bool:
        """Is told just before the operator raises."""
        self._virtual.on_out_of_memory = lambda: heard(self._virtual.failed_bytes, None)
        return True

    def ignore(self) -> None:
        """Is told no more."""
        self._virtual.on_out_of_memory = None

    def record_history(self, *, stacks: bool = True) -> bool:
        """Switches the allocation history on, unless it is on already; stacks are always recorded."""
        if not self._virtual.records_history:
            self._virtual.record_history(True, HISTORY_ENTRIES)
            self._recording = True
        return True

    def stop_history(self) -> None:
        """Switches it off."""
        if self._recording:
            self._recording = False
            self._virtual.record_history(False)

    def forward(self) -> None:
        """A root model is called."""
        self._virtual.trace.forward()

    def steps(self) -> Steps | None:
        """What the newest batches asked for."""
        found: Steps | None = self._virtual.trace.steps()
        return found

    @property
    def conf(self) -> str:
        """The simulated allocator's settings."""
        return str(self._virtual.conf)

    def snapshot(self) -> dict[str, Any] | None:
        """The simulated allocator's own."""
        found: dict[str, Any] = self._virtual.snapshot()
        return found


def view_of(backend: Backend) -> OomView:
    """The view of a backend's device; of "auto" that of the device in use."""
    if isinstance(backend, AutoBackend):
        backend = backend.current
    if isinstance(backend, CudaBackend):
        return CudaView(backend)
    if backend.device.startswith("virtual"):
        return VirtualView(backend)
    return OomView(backend)


def free_pieces(
    snapshot: dict[str, Any] | None, device: int | None = None, *, private: bool = False
) -> tuple[int | None, int | None]:
    """Free bytes inside segments of the default pool, and the largest piece; None without a snapshot.

    Args:
        snapshot: In PyTorch's format.
        device: The device's number, where the snapshot may hold several.
        private: Whether those of private pools are asked for instead.
    """
    if snapshot is None:
        return None, None
    from memguard.allocator.blocks import DEFAULT_POOL

    total = largest = 0
    for segment in snapshot["segments"]:
        if (tuple(segment.get("segment_pool_id") or DEFAULT_POOL) != DEFAULT_POOL) is not private:
            continue
        if device is not None and segment.get("device", device) != device:
            continue
        for block in segment["blocks"]:
            if block["state"] == "inactive":
                total += block["size"]
                largest = max(largest, block["size"])
    return total, largest


def blocks_by_address(snapshot: dict[str, Any] | None) -> dict[int, int]:
    """Sizes of the blocks in use, by address."""
    if snapshot is None:
        return {}
    return {
        block["address"]: block["size"]
        for segment in snapshot["segments"]
        for block in segment["blocks"]
        if block["state"] == "active_allocated" and "address" in block
    }


# Hears from CUDA's allocator that it is about to raise: attached once for each process, never raises.
# Private name of torch: ``_cuda_attach_out_of_memory_observer`` (checked with 2.11, 2.13 and 2.15). What is attached
# can never be detached, an exception in it would replace the out-of-memory error, and attaching before CUDA is
# initialised has crashed: hence one function for the whole process, and a list of who wants to know.

logger = logging.getLogger("memguard")

Listener = Callable[[int, int, int, int], None]
"""Called with device, bytes asked of the driver, what the process may have in all, what the driver has left."""

_listeners: list[Listener] = []
_attached = False


def listen(listener: Listener) -> bool:
    """Tells a listener of every failed allocation from now on, those that the program catches too.

    Returns:
        Whether it will hear anything: False while CUDA is not initialised, and in a build without CUDA.
    """
    global _attached
    attach = getattr(torch._C, "_cuda_attach_out_of_memory_observer", None)
    if attach is None or not torch.cuda.is_initialized():
        return False
    if not _attached:
        _attached = True
        attach(_heard)
    if listener not in _listeners:
        _listeners.append(listener)
    return True


def ignore(listener: Listener) -> None:
    """Tells a listener nothing any more."""
    if listener in _listeners:
        _listeners.remove(listener)


def _heard(device: int, requested_bytes: int, total_bytes: int, free_bytes: int) -> None:
    for listener in tuple(_listeners):
        try:
            listener(device, requested_bytes, total_bytes, free_bytes)
        except BaseException as error:
            logger.error("memguard: a listener failed in the out-of-memory observer: %r", error)
