"""Storages on the guarded device by owner: one pass over live objects, nothing kept.

Tensors that only C++ holds are found through the autograd graphs that saved them.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, final

import torch
from torch import nn

from memguard.autograd.graph import SHOWS_SAVED, iter_nodes, leaves_of, saved_tensors
from memguard.evidence.oom.stack import Stack
from memguard.evidence.owners import named_states
from memguard.heap.attributes import is_tensor_class
from memguard.torch_objects.module_parts import named_buffers_of, named_parameters_of
from memguard.torch_objects.storages import main_storage, storage_key

TOP = 10
ROWS = 2
"""Data so many times what a graph saved of it: a table of which this batch used some rows, and no activation."""
FIXED = ("parameters", "buffers", "gradients", "optimizer_state")
"""Owners whose memory stays whatever the batch."""
MAX_NODES = 200_000
MAX_NODES_IN_ALL = 300_000
"""Nodes of graphs in all walks together, about 3 microseconds each. Counted, so that a slow or busy machine tells the
same; a huge process is looked at in part, and ``other`` says so."""


@final
@dataclass(slots=True)
class Census:
    """Storages on the guarded device by owner, and the objects that matter."""

    on_device: Callable[[torch.Tensor], bool]
    block_of: Callable[[int, int], int]
    """From a storage's address and size to the bytes of its block."""
    tensors: list[torch.Tensor] = field(default_factory=list)
    modules: list[nn.Module] = field(default_factory=list)
    optimizers: list[torch.optim.Optimizer] = field(default_factory=list)
    exceptions: list[BaseException] = field(default_factory=list)
    owner: dict[int, str] = field(default_factory=dict)
    """From a storage's key to its owner; the first claim counts."""
    size: dict[int, int] = field(default_factory=dict)
    told: dict[int, tuple[str, tuple[int, ...], str]] = field(default_factory=dict)
    """Name, shape and dtype of a tensor of that storage."""
    results: dict[Any, list[torch.Tensor]] = field(default_factory=dict)
    """Where torch does not show what graphs saved: what is alive of a node's results, which further ones saved."""
    tables: set[int] = field(default_factory=set)
    """Storages of data of which graphs saved only a few rows: they stay whatever the batch."""
    nodes_left: int = MAX_NODES_IN_ALL
    """How many may still be looked at."""

    def claim(self, tensor: torch.Tensor, owner: str, name: str) -> int:
        """Gives a tensor's storage to an owner, if nobody has it; the bytes that were new."""
        key = self.key_of(tensor)
        if key is None or key in self.owner:
            return 0
        self.owner[key] = owner
        self.told[key] = (name, tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."))
        return self.size[key]

    def key_of(self, tensor: torch.Tensor) -> int | None:
        """The storage's key if it takes memory of the guarded device."""
        try:
            if not self.on_device(tensor):
                return None
        except RuntimeError:  # a tensor that cannot be asked (`_answers`)
            return None
        key = storage_key(tensor)
        if key is None or not key[1]:
            return None
        if key[0] not in self.size:
            try:
                address = main_storage(tensor).data_ptr()  # type: ignore[union-attr]  # it has a key
            except RuntimeError:  # a storage without an address, as fake tensors have
                return None
            self.size[key[0]] = self.block_of(address, key[1])
        return key[0]

    def reach(self, tensors: Iterable[torch.Tensor]) -> dict[int, int]:
        """The storages that some tensors keep, themselves and through their graphs, without weights and the like."""
        found: dict[int, int] = {}
        nodes: list[Any] = []
        for tensor in tensors:
            key = self.key_of(tensor)
            if key is not None:
                found[key] = self.size[key]
            node = tensor.grad_fn
            if node is not None:
                nodes.append(node)
        for saved, _ in self.walk(nodes):
            key = self.key_of(saved)
            if key is not None:
                found[key] = self.size[key]
        return {key: size for key, size in found.items() if self.owner.get(key) not in FIXED}

    def may_be_kept(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor takes memory of the guarded device, and is no weight or the like."""
        key = self.key_of(tensor)
        return key is not None and self.owner.get(key) not in FIXED

    def walk(self, nodes: Iterable[Any], leaves: set[int] | None = None) -> Iterator[tuple[torch.Tensor, str]]:
        """The tensors that graphs saved, with the name of the node; parameters' ids go into `leaves`."""
        for node in iter_nodes(nodes, min(MAX_NODES, self.nodes_left)):
            self.nodes_left -= 1
            variable = getattr(node, "variable", None)
            if variable is not None and leaves is not None:
                leaves.add(id(variable))
            name = ""
            for tensor in saved_tensors(node) if SHOWS_SAVED else self.results.get(node, ()):
                name = name or node.name()
                yield tensor, name


def collect(census: Census) -> None:
    """One pass over what the garbage collector knows, sorted by type; no object's own code runs."""
    kinds: dict[int, list[Any] | None] = {}  # by the class's id: to hash one may run the user's code
    wanted: tuple[tuple[type, list[Any]], ...] = (
        (nn.Module, census.modules),
        (torch.optim.Optimizer, census.optimizers),
        (BaseException, census.exceptions),
    )
    for thing in gc.get_objects():
        kind = type(thing)
        try:
            found = kinds[id(kind)]
        except KeyError:
            found = census.tensors if is_tensor_class(kind) else None
            kinds[id(kind)] = found = (
                found if found is not None else next((into for base, into in wanted if issubclass(kind, base)), None)
            )
        if found is not None:
            found.append(thing)
    census.tensors[:] = filter(_answers, census.tensors)
    for tensor in () if SHOWS_SAVED else census.tensors:
        if not tensor.is_leaf and tensor.grad_fn is not None:
            census.results.setdefault(tensor.grad_fn, []).append(tensor)


def _answers(tensor: torch.Tensor) -> bool:
    """Whether a tensor can be asked at all; torch 2.4 leaves emptied ones to the collector, which nobody refers to."""
    try:
        return tensor.is_leaf is not None
    except RuntimeError:
        return False


def root_modules(modules: list[nn.Module]) -> list[nn.Module]:
    """The modules that are no part of another one."""
    parts: set[int] = set()
    for module in modules:
        children: Any = module.__dict__.get("_modules") or {}
        parts.update(id(child) for child in children.values())
    return [module for module in modules if id(module) not in parts and "_parameters" in module.__dict__]


def claim_weights(census: Census, roots: list[nn.Module]) -> dict[int, str]:
    """Parameters, their gradients and buffers; returns the parameters' names by id."""
    names: dict[int, str] = {}
    buffers = []
    for root in roots:
        title = type(root).__name__
        for name, parameter in named_parameters_of(root):
            names[id(parameter)] = f"{title}.{name}"
            census.claim(parameter, "parameters", names[id(parameter)])
        buffers += [(f"{title}.{name}", buffer) for name, buffer in named_buffers_of(root)]
    for tensor in census.tensors:
        if issubclass(type(tensor), nn.Parameter):
            census.claim(tensor, "parameters", names.get(id(tensor), "a parameter"))
    for tensor in census.tensors:
        if tensor.is_leaf and tensor.requires_grad and tensor.grad is not None:
            census.claim(tensor.grad, "gradients", f"gradient of {names.get(id(tensor), 'a tensor')}")
    for name, buffer in buffers:
        census.claim(buffer, "buffers", name)
    return names


def claim_states(census: Census, names: dict[int, str]) -> dict[int, int]:
    """Optimizer state; returns bytes by id of the optimizer."""
    found: dict[int, int] = {}
    for optimizer in census.optimizers:
        found[id(optimizer)] = sum(
            census.claim(tensor, "optimizer_state", f"{key} of {names.get(id(parameter), 'a parameter')}")
            for parameter, key, tensor in named_states(optimizer)
        )
    return found


def claim_graphs(census: Census, stack: Stack, leaves: set[int]) -> tuple[int, int]:
    """What graphs saved: bytes of it in float32, and the largest single one."""
    if stack.losses:
        leaves.update(map(id, leaves_of((loss.grad_fn for loss in stack.losses), MAX_NODES)))
    float32 = largest = 0
    nodes = [tensor.grad_fn for tensor in census.tensors if not tensor.is_leaf and tensor.grad_fn is not None]
    data = _keys_of_data(census)
    for tensor, node in census.walk(nodes, leaves):
        key = census.key_of(tensor)
        if key in data and tensor.numel() * tensor.element_size() * ROWS <= census.size[key]:
            census.tables.add(key)
            continue
        nbytes = census.claim(tensor, "activations", f"saved by {node}")
        if nbytes and tensor.dtype == torch.float32:
            float32 += nbytes
        largest = max(largest, nbytes)
    return float32, largest


def _keys_of_data(census: Census) -> set[int]:
    """Storages that tensors without a graph show: data, as far as graphs saved only a part of it."""
    plain = (tensor for tensor in census.tensors if tensor.is_leaf and not tensor.requires_grad)
    return {key for key in map(census.key_of, plain) if key is not None}
