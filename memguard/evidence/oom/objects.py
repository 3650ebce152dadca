"""Owners of the device's memory after an out-of-memory error: one pass, nothing kept.

Tensors that only C++ holds are found through the autograd graphs that saved them; what no object shows is ``other``.
Where torch does not show what graphs saved, it is taken for that: nothing else is as large.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import nn

from memguard.autograd.graph import SHOWS_SAVED, leaves_of
from memguard.evidence.host.datasets import batching_place
from memguard.evidence.naming.holders import HolderSearch
from memguard.evidence.oom.census import (
    MAX_NODES,
    MAX_NODES_IN_ALL,
    TOP,
    Census,
    claim_graphs,
    claim_states,
    claim_weights,
    collect,
    root_modules,
)
from memguard.evidence.oom.holders import claim_locals, find_exceptions, find_hoards, place_holding
from memguard.evidence.oom.stack import Stack, is_unused
from memguard.evidence.owners import named_states, state_tensors
from memguard.heap.frames import is_user_frame
from memguard.heap.parameters import held_parameters
from memguard.postmortem.scene import OWNERS, HeldModel, Objects, OptimizerUse, TopTensor, Trainable
from memguard.torch_objects.module_parts import buffers_of, gradient_of, gradients_of, parameters_of, parts_of


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
    collect(census)
    roots = root_modules(census.modules)
    names = claim_weights(census, roots)
    states = claim_states(census, names)
    leaves: set[int] = set()
    float32, largest = claim_graphs(census, stack, leaves)
    lines = claim_locals(census, stack)
    for tensor in census.tensors:
        census.claim(tensor, "outputs", "a kept tensor")
    owners = _owners(census, allocated_bytes)
    current = _current(stack, roots, is_recent)
    parameters = list(_trained(census, [root for root in roots if id(root) in current]))
    reached = sum(id(parameter) in leaves for parameter in parameters)
    census.nodes_left = max(census.nodes_left, MAX_NODES_IN_ALL // 2)
    gradients = gradients_of(parameters)
    search = HolderSearch(frames=filter(is_user_frame, stack.frames))
    model = stack.model or next((root for root in roots if id(root) in current), None)
    return Objects(
        owners=owners,
        tensors=_top(census),
        lines=lines,
        models=_models(census, roots, current, search),
        hoards=find_hoards(census, stack, search),
        exceptions=find_exceptions(census, stack, search),
        optimizers=tuple(_uses(census, stack, states, optimizer_steps)),
        forward_share=reached / len(parameters) if parameters else None,
        trainable_bytes=_bytes(census, parameters),
        gradient_bytes=_bytes(census, gradients),
        float32_activation_bytes=float32,
        largest_activation_bytes=largest,
        training=model.training if model is not None else None,
        grad_enabled=grad_enabled,
        trainable=tuple(
            Trainable(tuple(each.shape), census.size[key], gradient_of(each) is not None)
            for each in parameters
            if (key := census.key_of(each)) is not None
        ),
        layers=sum(1 for part in parts_of(model) if part._parameters) if model is not None else 0,
        site=stack.site,
        call_site=stack.call_site,
        unused=is_unused(stack),
        inputs=stack.inputs,
        phase=stack.phase,
        batching=batching_place(),
    )


def _owners(census: Census, allocated_bytes: int | None) -> dict[str, int]:
    """Bytes by owner; what no object shows is told apart by whether graphs can show what they saved."""
    owners = dict.fromkeys(OWNERS, 0)
    for key, owner in census.owner.items():
        owners[owner] += census.size[key]
    if allocated_bytes is not None:
        hidden = max(allocated_bytes - sum(owners.values()), 0)
        has_graphs = any(tensor.grad_fn is not None for tensor in census.tensors)
        owners["other" if SHOWS_SAVED or not has_graphs else "activations"] += hidden
    return owners


def _trained(census: Census, roots: list[nn.Module]) -> Iterator[nn.Parameter]:
    """The parameters on the device that want gradients."""
    for root in roots:
        for parameter in parameters_of(root):
            if parameter.requires_grad and census.key_of(parameter) is not None:
                yield parameter


def _current(stack: Stack, roots: list[nn.Module], is_recent: Callable[[nn.Module], bool]) -> set[int]:
    """Ids of the root models in use: what failed, what the failing loss or optimizer belongs to, what ran lately."""
    wanted: set[int] = set()
    if stack.model is not None:
        wanted = {id(parameter) for parameter in parameters_of(stack.model)}
    elif stack.optimizer is not None:
        wanted = held_parameters([stack.optimizer])
    elif stack.losses:
        wanted = {id(leaf) for leaf in leaves_of((loss.grad_fn for loss in stack.losses), MAX_NODES)}
    return {
        id(root)
        for root in roots
        if is_recent(root) or any(id(parameter) in wanted for parameter in parameters_of(root))
    }


def _models(census: Census, roots: list[nn.Module], current: set[int], search: HolderSearch) -> tuple[HeldModel, ...]:
    found = []
    for root in roots:
        tensors = [*parameters_of(root), *buffers_of(root)]
        tensors += gradients_of(parameters_of(root))
        if not tensors:
            continue
        own = {id(parameter) for parameter in parameters_of(root)}
        for optimizer in census.optimizers:
            tensors += [tensor for parameter, _, tensor in named_states(optimizer) if id(parameter) in own]
        nbytes = _bytes(census, tensors)
        if nbytes:
            used = id(root) in current
            holder = None if used else place_holding(root, search).holder
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
        lacking = [p for p in parameters if gradient_of(p) is not None and not state.get(p)]
        stepping = stack.optimizer is optimizer
        own = states.get(id(optimizer), 0)
        factor: float | None = state_tensors(type(optimizer).__name__, groups[0])
        if factor is None and stepping and own:  # as much again for each byte of what is still to come
            reached = total - _bytes(census, lacking)
            factor = own / reached if reached > 0 else None
        yield OptimizerUse(
            name=type(optimizer).__name__,
            steps=0 if lacking or (stepping and steps == 0) else max(steps, 1),
            stepping=stepping,
            state_bytes=own,
            full_state_bytes=None if factor is None else round(factor * total),
            temporary_bytes=total if _is_foreach(groups[0], parameters[0]) else 0,
        )


def _is_foreach(group: dict[str, Any], parameter: torch.Tensor) -> bool:
    if "foreach" not in group or group.get("fused") or group.get("capturable"):
        return False
    foreach = group.get("foreach")
    return bool(foreach) if foreach is not None else parameter.device.type in ("cuda", "xpu")


def _bytes(census: Census, tensors: Iterable[torch.Tensor | None]) -> int:
    keys = {census.key_of(tensor) for tensor in tensors if tensor is not None}
    return sum(census.size[key] for key in keys if key is not None)


def _top(census: Census) -> tuple[TopTensor, ...]:
    """What takes the most, equal tensors together."""
    equal = Counter((*census.told[key], owner, census.size[key]) for key, owner in census.owner.items())
    largest = heapq.nlargest(TOP, equal.items(), key=lambda each: each[1] * each[0][-1])
    return tuple(
        TopTensor(name=name, owner=owner, shape=shape, dtype=dtype, bytes=size, count=count)
        for (name, shape, dtype, owner, size), count in largest
    )
