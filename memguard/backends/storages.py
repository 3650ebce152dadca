"""Follows the storages of a process's tensors: a block of the simulated allocator for each, for as long as it lives.

Tensors share storages, so storages are what takes memory. PyTorch keeps one Python object per storage alive as long as
the storage itself (since 2.1), so a weak reference to that object tells when the memory goes, whoever held it last.
In torch 2.4 the object of a batch that came from another process outlives its storage until a cache is tidied up.
"""

from __future__ import annotations

import gc
import threading
import weakref
from collections import deque
from collections.abc import Iterable
from typing import Any, final

import torch
from torch.multiprocessing.reductions import shared_cache  # private; checked in torch 2.4 and 2.13

from memguard.allocator import CachingAllocator, OutOfMemory
from memguard.backends.step_trace import StepTrace
from memguard.heap.attributes import is_tensor
from memguard.postmortem.scene import Event
from memguard.torch_objects.hidden_hooks import skipped_by_dynamo
from memguard.torch_objects.storages import dispatches_itself, sparse_parts, storage_of, unheard, untyped_storage

_BASE: Any = torch._C.TensorBase
_PLAIN: frozenset[type] = frozenset((torch.Tensor, torch.nn.Parameter))
_function_modes: Any = torch._C._len_torch_function_stack  # private; checked in torch 2.4 and 2.13
_SIMPLE: frozenset[type] = frozenset((int, float, bool, str, type(None), torch.dtype, torch.device, torch.layout))
"""Arguments without tensors."""


class _StorageRef(weakref.ref[torch.UntypedStorage]):
    """A storage's weak reference, with the block it lives in and what operators did with it."""

    __slots__ = ("address", "before", "born", "key", "nbytes", "reads", "used")

    key: int
    address: int
    nbytes: int
    born: int
    """By the clock of `Storages`, as is `used`."""
    used: int
    """When an operator last took it, or gave it."""
    reads: int
    """Operators that took it and did not give it back, as a view or changed in place."""
    before: int
    """Its reads before the newest operator."""


@final
class Storages:
    """The storages on the virtual GPU and their blocks.

    A storage may die at any moment, in any thread, even inside the allocator when Python collects garbage there; such
    blocks are freed as soon as the allocator is no longer at work.
    """

    def __init__(self, allocator: CachingAllocator) -> None:
        self._allocator = allocator
        self._live: dict[int, _StorageRef] = {}
        self._lock = threading.Lock()
        self._late: deque[int] = deque()
        self.trace = StepTrace()
        """What the newest batches asked for."""
        self.clock = 0
        """Set by whoever asks when a storage was used."""

    def __len__(self) -> int:
        return len(self._live)

    def holds(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor's storage has a block.

        Raises:
            RuntimeError: The tensor cannot be asked for its storage.
        """
        return id(tensor.untyped_storage()) in self._live

    def alive(self) -> list[_StorageRef]:
        """All of them, with what was done to each."""
        return list(self._live.values())

    def find(self, tensor: torch.Tensor) -> _StorageRef | None:
        """What was done to a tensor's storage; None where it has no block."""
        storage = storage_of(tensor)
        return None if storage is None else self._live.get(id(storage))

    def see_all(self, values: Iterable[Any], *, given: bool = False) -> None:
        """Sees each of an operator's arguments or results, see `see`; written out, as every operator passes it twice.

        Args:
            values: They.
            given: Whether they are results.

        Raises:
            OutOfMemory: There is no room.
        """
        if _function_modes():  # they would hear of what is read below
            with unheard():
                self.see(tuple(values), given=given)
            return
        live, clock = self._live, self.clock
        for value in values:
            kind = type(value)
            if kind in _PLAIN:
                try:
                    storage = untyped_storage(value)
                except (NotImplementedError, RuntimeError):
                    self.see(value, given=given)
                    continue
                known = live.get(id(storage))
                if known is None:
                    if value.is_cpu and (nbytes := storage.nbytes()):
                        self._add(storage, nbytes, value.shape)
                elif known.nbytes != storage.nbytes():
                    self._resize(known, storage.nbytes(), value.shape)
                elif given:
                    known.reads = known.before
                else:
                    known.used, known.before = clock, known.reads
                    known.reads += 1
            elif kind is list or kind is tuple:
                self.see_all(value, given=given)
            elif kind not in _SIMPLE:
                with unheard():
                    self.see(value, given=given)

    def see(self, value: Any, *, given: bool = True) -> None:
        """Gives every new storage in an operator's arguments or results a block; a resized one a new block.

        Args:
            value: A tensor, a list or tuple of values, or anything else, which is passed over.
            given: Whether no operator took it.

        Raises:
            OutOfMemory: There is no room. Storages seen before keep their blocks.
        """
        if isinstance(value, torch.Tensor):
            try:
                storage = untyped_storage(value)
            except (NotImplementedError, RuntimeError):
                for part in reversed(sparse_parts(value)):  # indices are made before values
                    self.see(part, given=given)
                return
            known = self._live.get(id(storage))
            nbytes = storage.nbytes()
            if known is not None and not given:
                known.used, known.before = self.clock, known.reads
                known.reads += 1
            elif known is not None:
                known.reads = known.before
            if known is None:
                if nbytes and storage.device.type == "cpu" and not dispatches_itself(type(value)):
                    self._add(storage, nbytes, _shape_of(value))
            elif known.nbytes != nbytes:
                self._resize(known, nbytes, _shape_of(value))
        elif isinstance(value, (list, tuple)):
            for item in value:
                self.see(item, given=given)

    def see_existing(self) -> None:
        """Sees every tensor that Python knows of in this process, oldest first, and their gradients.

        What only waits for the collector is collected first: it would go at some later batch, and its level with it.

        Raises:
            OutOfMemory: They do not fit.
        """
        gc.collect()
        generations = (gc.get_objects(generation=2), gc.get_objects(generation=1), gc.get_objects(generation=0))
        for objects in generations:
            for item in objects:
                if issubclass(type(item), torch.Tensor):  # isinstance would ask proxies, and wake them
                    self.see_whole(item)

    def see_whole(self, tensor: torch.Tensor) -> None:
        """Sees one tensor, the tensors inside it if it wraps some, and its gradient.

        Raises:
            OutOfMemory: They do not fit.
        """
        wrapped = getattr(type(tensor), "__tensor_flatten__", None)
        if wrapped is not None and is_tensor(tensor):
            for name in wrapped(tensor)[0]:
                if isinstance(part := getattr(tensor, name), torch.Tensor):  # a DTensor names its mesh too
                    self.see_whole(part)
        elif not dispatches_itself(type(tensor)):
            self.see(tensor)
        elif (storage := storage_of(tensor)) is not None:
            self.resized(storage)
        gradient = _gradient_of(tensor)
        if gradient is not None:
            self.see_whole(gradient)

    def resized(self, storage: torch.UntypedStorage) -> None:
        """Follows a storage whose size was changed outside any operator.

        Raises:
            OutOfMemory: The new size does not fit.
        """
        known, nbytes = self._live.get(id(storage)), storage.nbytes()
        if known is not None:
            self._resize(known, nbytes, (nbytes,))
        elif nbytes and storage.device.type == "cpu":
            self._add(storage, nbytes, (nbytes,))

    def settle(self) -> None:
        """Frees what died while the allocator was at work."""
        if self._late:
            with self._lock:
                self._free_late()

    def clear(self) -> None:
        """Follows nothing any more; the blocks stay as they are."""
        self._live.clear()

    def _add(self, storage: torch.UntypedStorage, nbytes: int, shape: tuple[int, ...]) -> None:
        if shared_cache and storage.is_shared():
            shared_cache.free_dead_references()
        address = self._malloc(nbytes, shape)
        ref = _StorageRef(storage, self._died)
        ref.key, ref.address, ref.nbytes = id(storage), address, nbytes
        ref.born = ref.used = self.clock
        ref.reads = ref.before = 0
        self._live[ref.key] = ref

    def _resize(self, ref: _StorageRef, nbytes: int, shape: tuple[int, ...]) -> None:
        address = self._malloc(nbytes, shape)  # as PyTorch does it: the old block lives until its contents are copied
        self._free(ref.address)
        ref.address, ref.nbytes = address, nbytes

    @skipped_by_dynamo
    def _died(self, ref: weakref.ref[torch.UntypedStorage]) -> None:
        assert isinstance(ref, _StorageRef)
        if self._live.get(ref.key) is ref:
            del self._live[ref.key]
        self._free(ref.address)

    def _malloc(self, nbytes: int, shape: tuple[int, ...]) -> int:
        with self._lock:
            if self._late:
                self._free_late()
            try:
                address = self._allocator.malloc(nbytes)
            except OutOfMemory:
                self.trace.wanted = Event(0, nbytes, tuple(shape))
                raise
            self.trace.took(address, nbytes, shape)
        if self._late:
            self.settle()
        return address

    def _free(self, address: int) -> None:
        if not self._lock.acquire(blocking=False):
            self._late.append(address)
            return
        try:
            self._give_back(address)
        finally:
            self._lock.release()

    def _free_late(self) -> None:
        while self._late:
            self._give_back(self._late.popleft())

    def _give_back(self, address: int) -> None:
        self._allocator.free(address)
        self.trace.freed(address)


def _gradient_of(tensor: torch.Tensor) -> torch.Tensor | None:
    """The gradient of a leaf, read past its class; FSDP's views of its flat parameter cannot even be asked."""
    try:
        if _BASE.is_leaf.__get__(tensor):
            gradient: torch.Tensor | None = _BASE.grad.__get__(tensor)
            return gradient
    except RuntimeError:
        pass
    return None


def _shape_of(tensor: torch.Tensor) -> tuple[int, ...]:
    """A tensor's shape, read past its class; a nested one has none."""
    try:
        return tuple(_BASE.shape.__get__(tensor))
    except RuntimeError:
        return ()


# Notices a storage that is resized by itself, as FSDP does: the one change that is no operator.

_PATCH = "_memguard_resizes"
"""On a wrapper: the object that put it there."""


@final
class StorageResizes:
    """A wrapper around ``torch.UntypedStorage.resize_`` between `install` and `remove`."""

    def __init__(self, storages: Storages) -> None:
        self._storages: Storages | None = None
        self._to_tell = storages
        self._before: Any = None

    def install(self) -> None:
        """Puts the wrapper in place."""
        self._storages = self._to_tell
        self._before = torch.UntypedStorage.__dict__.get("resize_")
        original = torch.UntypedStorage.resize_

        def resize_(storage: torch.UntypedStorage, *args: Any) -> Any:
            out = original(storage, *args)
            if self._storages is not None and (text := _resized(self._storages, storage)) is not None:
                raise torch.OutOfMemoryError(text)
            return out

        vars(resize_)[_PATCH] = self
        torch.UntypedStorage.resize_ = resize_  # type: ignore[method-assign, assignment]

    def remove(self) -> None:
        """Takes the wrapper away; where somebody wrapped it in turn, it stays and does nothing."""
        self._storages = None
        # Devices may go in any order: the wrapper of one that went underneath another's goes with the last.
        while (top := _topmost()) is not None and top._storages is None:
            if top._before is None:
                del torch.UntypedStorage.resize_
            else:
                torch.UntypedStorage.resize_ = top._before  # type: ignore[method-assign]


def _topmost() -> StorageResizes | None:
    """Whose the wrapper in place is, if it is one of ours."""
    return getattr(torch.UntypedStorage.__dict__.get("resize_"), _PATCH, None)


def _resized(storages: Storages, storage: torch.UntypedStorage) -> str | None:
    try:
        storages.resized(storage)
    except OutOfMemory as error:  # as text, of which the caller makes torch's own error
        return str(error)
    return None
