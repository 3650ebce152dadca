"""What is allocated on the fake GPU: storages followed by weak reference, kernels' own memory, events in order."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from memguard.forecast.fakes.streams import current_stream
from memguard.forecast.trace import Event, Kind


class Blocks:
    """The memory events of a step, and the storages that are alive.

    A free is recorded when PyTorch would free: when the storage dies.
    """

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.owners: list[str] = []
        """Of each block, by its number."""
        self.allocated_bytes = 0
        self._live: dict[int, tuple[int, int, Any]] = {}
        """Storage address -> block, bytes, weak reference."""
        self._accumulated: tuple[int, int, int] | None = None
        """Address of the storage just made, the block that it really takes if that dies now, and its event's index."""

    def outputs(self, out: Any, site: int) -> None:
        """What an operator returned: new storages on the GPU are allocated now."""
        if isinstance(out, FakeTensor):
            if out.fake_device.type != "cuda":
                return
            out.constant = None  # a value that PyTorch would compute with on the GPU
            if out.layout is torch.sparse_coo:
                self.outputs((out._indices(), out._values()), site)
            else:
                self.storage(out, site)
        elif isinstance(out, (list, tuple)):
            for item in out:
                self.outputs(item, site)

    def storage(self, tensor: torch.Tensor, site: int) -> int:
        """The block of a tensor's storage, allocated now if it is new."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        nbytes = storage.nbytes()
        known = self._live.get(key)
        if known is not None:
            if known[1] == nbytes:
                return known[0]
            self._free(key)
        block = len(self.owners)
        self.owners.append("")
        if nbytes:
            self.events.append(Event(Kind.ALLOC, block, nbytes, current_stream(), site))
            self.allocated_bytes += nbytes
        self._live[key] = (block, nbytes, weakref.ref(storage, lambda _: self._free(key)))
        return block

    def block_of(self, tensor: torch.Tensor) -> int | None:
        """The block that holds a tensor (the values of a sparse one), or None for a host tensor."""
        known = self._live.get(_address(tensor))
        return known[0] if known is not None else None

    def record_stream(self, tensor: torch.Tensor, stream: int) -> None:
        """Another stream uses a tensor's memory: once let go, it waits for what that stream has to do."""
        known = self._live.get(tensor.untyped_storage()._cdata)
        if known is not None and known[1]:
            self.mark(Kind.RECORD_STREAM, block=known[0], nbytes=stream)

    def resized_storage(self, storage: torch.UntypedStorage, owner: str, site: int) -> None:
        """A storage that is known has another size now."""
        key = storage._cdata
        known = self._live.get(key)
        if known is None or known[1] == storage.nbytes():
            return
        self.owners[known[0]] = self.owners[known[0]] or owner
        self._free(key)
        block, nbytes = len(self.owners), storage.nbytes()
        self.owners.append(owner)
        if nbytes:
            self.events.append(Event(Kind.ALLOC, block, nbytes, current_stream(), site))
            self.allocated_bytes += nbytes
        self._live[key] = (block, nbytes, weakref.ref(storage, lambda _: self._free(key)))

    def _free(self, key: int) -> None:
        entry = self._live.pop(key, None)
        if entry is None or not entry[1]:
            return
        block, nbytes, _ = entry
        self.allocated_bytes -= nbytes
        if self._accumulated is not None:
            made, operand, index = self._accumulated
            if block == operand and self.events[index].nbytes == nbytes:
                # The engine would have worked in place: the result takes the operand's block.
                self._accumulated = None
                del self.events[index]
                if made in self._live:
                    self._live[made] = (block, *self._live[made][1:])
                return
        self.events.append(Event(Kind.FREE, block, 0, 0, 0))

    def _accumulation(self, args: tuple[Any, ...], out: Any) -> None:
        """The engine adds a gradient to one that waits: on ordinary tensors in place, on fake ones out of place.

        Not if the waiting one is a view: that holds its base, so the engine does not own its memory alone.
        """
        waiting = args[0]
        if isinstance(waiting, torch.Tensor) and not waiting._is_view():
            self._reused(out, waiting)

    def _added_in_place(self, args: tuple[Any, ...], out: Any) -> None:
        """`linear` adds its bias, attention its mask: on ordinary tensors in place, on fake ones out of place.

        Such a composite shows in the operator before having come from the same instruction of the same frame.
        """
        if isinstance(args[0], torch.Tensor):
            self._reused(out, args[0])

    def _reused(self, out: Any, operand: torch.Tensor) -> None:
        """`out`, just made, is really `operand` if that dies now."""
        made, block = self.block_of(out), self.block_of(operand)
        if made is not None and block is not None and self.events and self.events[-1].block == made:
            self._accumulated = (_address(out), block, len(self.events) - 1)

    def hold(self, site: int, nbytes: int) -> Callable[[], None]:
        """Memory that a kernel takes for itself; the function returned gives it back."""
        block = len(self.owners)
        self.owners.append("temporaries")
        self.events.append(Event(Kind.ALLOC, block, nbytes, current_stream(), site))
        return lambda: self.events.append(Event(Kind.FREE, block, 0, 0, 0))

    def take(self, site: int, *sizes: int) -> None:
        """Memory that a kernel takes piece by piece, and gives back in the opposite order when it is done."""
        for release in [self.hold(site, nbytes) for nbytes in sizes if nbytes][::-1]:
            release()

    def play(self, site: int, plan: Iterable[int], result: torch.Tensor | None = None) -> None:
        """Memory that a kernel takes (positive sizes) and gives back (the latest of that size, negative).

        The first size that is `result`'s is no scratch: that storage stays.
        """
        own = result.untyped_storage().nbytes() if result is not None else None
        held: dict[int, list[Callable[[], None]]] = {}
        for nbytes in plan:
            if nbytes < 0:
                held[-nbytes].pop()()
            elif nbytes == own and result is not None:
                self.storage(result, site)
                own = None
            elif nbytes:
                held.setdefault(nbytes, []).append(self.hold(site, nbytes))

    def larger(self, tensor: torch.Tensor, site: int, nbytes: int) -> None:
        """An output whose memory is larger than its elements need."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        block = len(self.owners)
        self.owners.append("")
        self.events.append(Event(Kind.ALLOC, block, nbytes, current_stream(), site))
        self.allocated_bytes += storage.nbytes()
        self._live[key] = (block, storage.nbytes(), weakref.ref(storage, lambda _: self._free(key)))

    def ignore(self, tensors: Iterable[torch.Tensor]) -> None:
        """Outputs that are on the GPU in the fake only."""
        for tensor in tensors:
            storage = tensor.untyped_storage()
            key = storage._cdata
            block = len(self.owners)
            self.owners.append("temporaries")
            self._live[key] = (block, 0, weakref.ref(storage, lambda _, key=key: self._free(key)))  # type: ignore[misc]

    def library_call(self, kind: Kind, site: int, nbytes: int = 0) -> None:
        """A call of a matrix or convolution library, which may take a workspace of its thread."""
        on_engine = int(torch._C._current_autograd_node() is not None)
        self.events.append(Event(kind, on_engine, nbytes, current_stream(), site))

    def mark(self, kind: Kind, site: int = 0, *, nbytes: int = 0, block: int = 0) -> None:
        """An event without memory of its own."""
        self.events.append(Event(kind, block, nbytes, current_stream(), site))


def _address(tensor: torch.Tensor) -> int:
    """Of a tensor's storage, or that of a sparse one's values."""
    if tensor.layout is torch.sparse_coo:
        tensor = tensor._values()
    address: int = tensor.untyped_storage()._cdata
    return address
