"""Who owns the device's memory when it has run out: one pass over the live objects, no tensor operation, nothing kept.

Tensors that only C++ holds are found through the autograd graphs that saved them; what no object shows is ``other``.
"""

from __future__ import annotations

import gc
import heapq
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, final

import torch
from torch import nn

from memguard.postmortem.scene import OWNERS, HeldModel, Objects, OptimizerUse, TopLine, TopTensor
from memguard.probes.frames import is_user_frame, read_locals
from memguard.probes.ledger import tensors_in
from memguard.probes.oom_keepers import find_exceptions, find_hoards, name_of
from memguard.probes.oom_stack import Stack
from memguard.probes.sites import place_of
from memguard.probes.sizes import saved_tensors, storage_key

TOP = 10
MAX_NODES = 200_000
SECONDS = 0.8
"""What the dearest parts may take together; a huge process is looked at in part, and ``other`` says so."""
_STATE_TENSORS = {"Adam": 2, "AdamW": 2, "NAdam": 2, "RAdam": 2, "Adamax": 2, "Adadelta": 2, "Rprop": 2, "Adagrad": 1}


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
    deadline: float = 0.0

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
        except RuntimeError:
            return None
        key = storage_key(tensor)
        if key is None or not key[1]:
            return None
        if key[0] not in self.size:
            try:
                address = tensor.untyped_storage().data_ptr()
            except RuntimeError:
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
        fixed = ("parameters", "buffers", "gradients", "optimizer_state")
        return {key: size for key, size in found.items() if self.owner.get(key) not in fixed}

    def walk(self, nodes: Iterable[Any], leaves: set[int] | None = None) -> Iterator[tuple[torch.Tensor, str]]:
        """The tensors that graphs saved, with the name of the node; parameters' ids go into `leaves`."""
        level = list(nodes)
        seen = set(level)
        while level and len(seen) < MAX_NODES and time.perf_counter() < self.deadline:
            node = level.pop()
            variable = getattr(node, "variable", None)
            if variable is not None and leaves is not None:
                leaves.add(id(variable))
            name = ""
            for tensor in saved_tensors(node):
                name = name or node.name()
                yield tensor, name
            for upstream, _ in node.next_functions:
                if upstream is not None and upstream not in seen:
                    seen.add(upstream)
                    level.append(upstream)


def examine(
    stack: Stack,
    *,
    on_device: Callable[[torch.Tensor], bool],
    block_of: Callable[[int, int], int],
    allocated_bytes: int | None,
    is_recent: Callable[[nn.Module], bool],
    optimizer_steps: int,
    grad_enabled: bool,
) -> Objects:
    """What the live objects tell.

    Args:
        stack: Where the program stood.
        on_device: Whether a tensor lies on the guarded device.
        block_of: From a storage's address and size to the bytes that the allocator gave it.
        allocated_bytes: What the allocator counts; the rest of it goes to ``other``.
        is_recent: Whether a root model was called in this batch or the last.
        optimizer_steps: Steps of the run so far.
        grad_enabled: Whether gradients were enabled.
    """
    census = Census(on_device, block_of)
    census.deadline = time.perf_counter() + SECONDS
    _collect(census)
    roots = _roots(census.modules)
    names = _claim_weights(census, roots)
    states = _claim_states(census, names)
    leaves: set[int] = set()
    float32, largest = _claim_graphs(census, stack, leaves)
    lines = _claim_locals(census, stack)
    for tensor in census.tensors:
        census.claim(tensor, "outputs", "a kept tensor")
    owners = dict.fromkeys(OWNERS, 0)
    for key, owner in census.owner.items():
        owners[owner] += census.size[key]
    if allocated_bytes is not None:
        owners["other"] = max(allocated_bytes - sum(owners.values()), 0)
    current = _current(stack, roots, is_recent)
    parameters = [
        parameter
        for root in roots
        if id(root) in current
        for parameter in root.parameters()
        if parameter.requires_grad and census.key_of(parameter) is not None
    ]
    reached = sum(id(parameter) in leaves for parameter in parameters)
    census.deadline = max(census.deadline, time.perf_counter() + SECONDS / 2)
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    hoards = find_hoards(census, stack)
    model = next((root for root in roots if id(root) in current), stack.model)
    return Objects(
        owners=owners,
        tensors=_top(census),
        lines=lines,
        models=_models(census, roots, current, states, stack),
        hoards=hoards,
        exceptions=find_exceptions(census, stack),
        optimizers=tuple(_uses(census, stack, states, optimizer_steps)),
        forward_share=reached / len(parameters) if parameters else None,
        trainable_bytes=_bytes(census, parameters),
        gradient_bytes=_bytes(census, gradients),
        float32_activation_bytes=float32,
        largest_activation_bytes=largest,
        training=model.training if model is not None else None,
        grad_enabled=grad_enabled,
        layers=sum(1 for part in model.modules() if part._parameters) if model is not None else 0,
        site=stack.site,
        phase=stack.phase,
    )


def _collect(census: Census) -> None:
    """One pass over what the garbage collector knows, sorted by type; no object's own code runs."""
    kinds: dict[type, list[Any] | None] = {}
    wanted: tuple[tuple[type, list[Any]], ...] = (
        (torch.Tensor, census.tensors),
        (nn.Module, census.modules),
        (torch.optim.Optimizer, census.optimizers),
        (BaseException, census.exceptions),
    )
    for thing in gc.get_objects():
        kind = type(thing)
        try:
            found = kinds[kind]
        except KeyError:
            found = kinds[kind] = next((into for base, into in wanted if issubclass(kind, base)), None)
        if found is not None:
            found.append(thing)


def _roots(modules: list[nn.Module]) -> list[nn.Module]:
    """The modules that are no part of another one."""
    parts: set[int] = set()
    for module in modules:
        children: Any = module.__dict__.get("_modules") or {}
        parts.update(id(child) for child in children.values())
    return [module for module in modules if id(module) not in parts and "_parameters" in module.__dict__]


def _claim_weights(census: Census, roots: list[nn.Module]) -> dict[int, str]:
    """Parameters, their gradients and buffers; returns the parameters' names by id."""
    names: dict[int, str] = {}
    buffers = []
    for root in roots:
        title = type(root).__name__
        for name, parameter in root.named_parameters():
            names[id(parameter)] = f"{title}.{name}"
            census.claim(parameter, "parameters", names[id(parameter)])
        buffers += [(f"{title}.{name}", buffer) for name, buffer in root.named_buffers()]
    for tensor in census.tensors:
        if issubclass(type(tensor), nn.Parameter):
            census.claim(tensor, "parameters", names.get(id(tensor), "a parameter"))
    for tensor in census.tensors:
        if tensor.is_leaf and tensor.requires_grad and tensor.grad is not None:
            census.claim(tensor.grad, "gradients", f"gradient of {names.get(id(tensor), 'a tensor')}")
    for name, buffer in buffers:
        census.claim(buffer, "buffers", name)
    return names


def _claim_states(census: Census, names: dict[int, str]) -> dict[int, int]:
    """Optimizer state; returns bytes by id of the optimizer."""
    found: dict[int, int] = {}
    for optimizer in census.optimizers:
        total = 0
        for parameter, state in list(vars(optimizer).get("state", {}).items()):
            name = names.get(id(parameter), "a parameter")
            for key, value in list(state.items()) if issubclass(type(state), dict) else ():
                for tensor in tensors_in(value, 2):
                    total += census.claim(tensor, "optimizer_state", f"{key} of {name}")
        found[id(optimizer)] = total
    return found


def _claim_graphs(census: Census, stack: Stack, leaves: set[int]) -> tuple[int, int]:
    """What graphs saved: bytes of it in float32, and the largest single one."""
    if stack.losses:
        leaves.update(_leaves(census, stack.losses))
    float32 = largest = 0
    nodes = [tensor.grad_fn for tensor in census.tensors if not tensor.is_leaf and tensor.grad_fn is not None]
    for tensor, node in census.walk(nodes, leaves):
        nbytes = census.claim(tensor, "activations", f"saved by {node}")
        if nbytes and tensor.dtype == torch.float32:
            float32 += nbytes
        largest = max(largest, nbytes)
    return float32, largest


def _leaves(census: Census, losses: list[torch.Tensor]) -> set[int]:
    leaves: set[int] = set()
    for _ in census.walk([loss.grad_fn for loss in losses if loss.grad_fn is not None], leaves):
        pass
    return leaves


def _claim_locals(census: Census, stack: Stack) -> tuple[TopLine, ...]:
    """Local variables of the failing code; returns the user's frames and what their own variables hold."""
    lines = []
    for frame in stack.frames:
        own: dict[int, int] = {}
        place = place_of(frame)
        for name, value in read_locals(frame).items():
            for tensor in tensors_in(value, 2):
                key = census.key_of(tensor)
                if key is None:
                    continue
                nbytes = census.claim(tensor, "temporaries", f"`{name}` in {frame.f_code.co_name}()")
                if nbytes or census.owner[key] in ("activations", "temporaries"):
                    own[key] = census.size[key]
        if own and is_user_frame(frame):
            total = sum(own.values())
            lines.append(TopLine(file=place.file, line=place.line, function=place.function, bytes=total))
    return tuple(sorted(lines, key=lambda line: -line.bytes)[:TOP])


def _current(stack: Stack, roots: list[nn.Module], is_recent: Callable[[nn.Module], bool]) -> set[int]:
    """Ids of the root models in use: what failed, what the failing loss or optimizer belongs to, what ran lately."""
    wanted: set[int] = set()
    if stack.model is not None:
        wanted = {id(parameter) for parameter in stack.model.parameters()}
    elif stack.optimizer is not None:
        groups: Any = stack.optimizer.param_groups
        wanted = {id(parameter) for group in groups for parameter in group["params"]}
    elif stack.losses:
        found: set[int] = set()
        level = [loss.grad_fn for loss in stack.losses if loss.grad_fn is not None]
        seen = set(level)
        while level and len(seen) < MAX_NODES:
            node: Any = level.pop()
            if (variable := getattr(node, "variable", None)) is not None:
                found.add(id(variable))
            fresh = {upstream for upstream, _ in node.next_functions if upstream is not None} - seen
            seen |= fresh
            level += fresh
        wanted = found
    return {
        id(root) for root in roots if is_recent(root) or any(id(parameter) in wanted for parameter in root.parameters())
    }


def _models(
    census: Census, roots: list[nn.Module], current: set[int], states: dict[int, int], stack: Stack
) -> tuple[HeldModel, ...]:
    found = []
    for root in roots:
        tensors = [*root.parameters(), *root.buffers()]
        tensors += [parameter.grad for parameter in root.parameters() if parameter.grad is not None]
        own = {id(parameter) for parameter in root.parameters()}
        for optimizer in census.optimizers:
            for parameter, state in list(vars(optimizer).get("state", {}).items()):
                if id(parameter) in own and issubclass(type(state), dict):
                    tensors += list(tensors_in(state, 2))
        nbytes = _bytes(census, tensors)
        if nbytes:
            used = id(root) in current
            holder = None if used else name_of(root, stack)
            found.append(HeldModel(name=type(root).__name__, bytes=nbytes, current=used, holder=holder))
    return tuple(sorted(found, key=lambda model: -model.bytes))


def _uses(census: Census, stack: Stack, states: dict[int, int], steps: int) -> Iterator[OptimizerUse]:
    for optimizer in census.optimizers:
        groups: Any = optimizer.param_groups
        parameters = [
            p for group in groups for p in group["params"] if p.requires_grad and census.key_of(p) is not None
        ]
        if not parameters:
            continue
        total, state = _bytes(census, parameters), vars(optimizer).get("state", {})
        lacking = any(parameter.grad is not None and not state.get(parameter) for parameter in parameters)
        stepping = stack.optimizer is optimizer
        factor = _factor(type(optimizer).__name__, groups[0])
        yield OptimizerUse(
            name=type(optimizer).__name__,
            steps=0 if lacking else max(steps, 1),
            stepping=stepping,
            state_bytes=states.get(id(optimizer), 0),
            full_state_bytes=None if factor is None else round(factor * total),
            temporary_bytes=total if _is_foreach(groups[0], parameters[0]) else 0,
        )


def _factor(name: str, group: dict[str, Any]) -> float | None:
    """Tensors of state per parameter, for the classes of torch.optim."""
    if name == "SGD":
        return 1.0 if group.get("momentum") else 0.0
    if name == "RMSprop":
        return 1.0 + bool(group.get("momentum")) + bool(group.get("centered"))
    factor = _STATE_TENSORS.get(name)
    return None if factor is None else float(factor + bool(group.get("amsgrad")))


def _is_foreach(group: dict[str, Any], parameter: torch.Tensor) -> bool:
    if group.get("fused") or group.get("capturable"):
        return False
    foreach = group.get("foreach")
    return bool(foreach) if foreach is not None else parameter.device.type in ("cuda", "xpu")


def _bytes(census: Census, tensors: Iterable[torch.Tensor | None]) -> int:
    keys = {census.key_of(tensor) for tensor in tensors if tensor is not None}
    return sum(census.size[key] for key in keys if key is not None)


def _top(census: Census) -> tuple[TopTensor, ...]:
    largest = heapq.nlargest(TOP, census.owner, key=lambda key: census.size[key])
    found = []
    for key in largest:
        name, shape, dtype = census.told[key]
        found.append(TopTensor(name=name, owner=census.owner[key], shape=shape, dtype=dtype, bytes=census.size[key]))
    return tuple(found)
