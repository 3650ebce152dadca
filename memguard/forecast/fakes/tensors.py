"""The fake tensors on which a step runs: one for each real tensor, as long as that lives."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import _disable_current_modes

from memguard.forecast.blocks import Blocks
from memguard.forecast.sites import Sites

CPU = torch.device("cpu")


def inside(tensor: torch.Tensor) -> list[torch.Tensor]:
    """The ordinary tensors that hold a tensor's numbers: itself, or what a distributed tensor has on this rank."""
    flatten = getattr(tensor, "__tensor_flatten__", None)
    if flatten is None or type(tensor) is FakeTensor:
        return [tensor]
    parts = (getattr(tensor, name) for name in flatten()[0])
    return [inner for part in parts if isinstance(part, torch.Tensor) for inner in inside(part)]


class Fakes(Blocks):
    """Blocks that begin as fakes of real tensors, and what is known of those tensors' values."""

    def __init__(self, fake_mode: FakeTensorMode, cuda: torch.device) -> None:
        Blocks.__init__(self)
        self.cuda = cuda
        self.sites = Sites()
        self.fake_mode = fake_mode
        self._copies: dict[int, tuple[Any, FakeTensor]] = {}
        """Real or host tensor -> its fake on the GPU."""
        self._literals: dict[int, tuple[Any, torch.Tensor]] = {}
        """Short lists of whole numbers that the step wrote down: fake, by weak reference, and its values."""
        self._known: dict[int, Any] = {}
        """Real tensors on the host whose values count, by weak reference."""
        self._meta_storages: dict[int, torch.UntypedStorage] = {}

    def faked(self, value: Any) -> Any:
        """The same as a fake on its own device: a tensor, or a list that holds some; anything else as it is."""
        if isinstance(value, FakeTensor):
            return value
        if isinstance(value, torch.Tensor):
            return self.copy_of(value, self.cuda if value.is_cuda else CPU)
        if isinstance(value, (list, tuple)) and any(isinstance(item, torch.Tensor) for item in value):
            return [self.faked(item) for item in value]
        return value

    def moved(self, value: Any) -> Any:
        """The same on the fake GPU: a tensor, or a list that holds some; anything else as it is."""
        if isinstance(value, torch.Tensor):
            if isinstance(value, FakeTensor) and value.fake_device.type == "cuda":
                return value
            if value.device.type == "meta":
                return value
            return self.copy_of(value, self.cuda)
        if isinstance(value, (list, tuple)) and any(isinstance(item, torch.Tensor) for item in value):
            return [self.moved(item) for item in value]
        return value

    def copy_of(self, tensor: torch.Tensor, device: torch.device) -> FakeTensor:
        """The fake of a real (or host) tensor on `device`; the same one as long as the tensor lives."""
        known = self._copies.get(id(tensor))
        if known is not None and known[0]() is tensor:
            return known[1]
        fake = self.fake_of(tensor, device)
        identity = id(tensor)

        def forget(_: object) -> None:
            self._copies.pop(identity, None)

        self._copies[identity] = (weakref.ref(tensor, forget), fake)
        return fake

    def know(self, tensor: torch.Tensor) -> None:
        """A real tensor on the host whose values may be read: it is not made a fake."""
        self._known[id(tensor)] = weakref.ref(tensor)

    def know_literal(self, fake: torch.Tensor, values: torch.Tensor) -> None:
        """A list of whole numbers that the step wrote down, and its fake."""
        self._literals[id(fake)] = (weakref.ref(fake), values)

    def is_known(self, tensor: Any) -> bool:
        """Whether this is a real tensor whose values may be read."""
        known = self._known.get(id(tensor))
        return known is not None and known() is tensor

    def original_of(self, fake: torch.Tensor) -> torch.Tensor | None:
        """The tensor with values whose fake this is: the user's own, or a literal; None if it has none."""
        known = self._literals.get(id(fake))
        if known is not None and known[0]() is fake:
            return known[1]
        return next((real() for real, known in self._copies.values() if known is fake), None)

    def forget(self, tensor: torch.Tensor) -> None:
        """The tensor is about to become another one: no reference to it may be left."""
        self._copies.pop(id(tensor), None)

    def fake_of(self, tensor: torch.Tensor, device: torch.device) -> FakeTensor:
        """A new fake of a real (or host) tensor on `device`; tensors that share memory go on doing so."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        with _disable_current_modes():
            meta_storage = self._meta_storages.get(key)
            if meta_storage is None:
                meta_storage = torch.UntypedStorage(storage.nbytes(), device="meta")
                self._meta_storages[key] = meta_storage
            meta = torch.empty(0, dtype=tensor.dtype, device="meta")
            meta.set_(meta_storage, tensor.storage_offset(), tensor.size(), tensor.stride())
            fake = FakeTensor(self.fake_mode, meta, device)
            if device.type == "cpu" and not isinstance(tensor, FakeTensor) and tensor.numel() <= 1:
                fake.constant = tensor.detach()
        if device.type == "cuda":
            self.outputs(fake, self.sites.setup)
        return fake
