"""`memguard.coordinates`: this rank's place on the parallel axes, declared or read from the environment. No torch.

A rank of a large training has a place on several axes: its data-parallel replica, its shard, its tensor-parallel part,
its pipeline stage, its part of the context, its experts. Reports group ranks by them. Where a DeviceMesh or process
groups tell the place (`memguard.integrations.parallel_axes`), nothing need be declared.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Final

AXES: Final = ("dp", "fsdp", "tp", "pp", "cp", "ep")
"""Data parallel, sharded data parallel, tensor, pipeline, context and expert parallel."""
_SIZES = {
    "tp": ("TENSOR_MODEL_PARALLEL_SIZE", "TENSOR_PARALLEL_SIZE", "TP_SIZE"),
    "cp": ("CONTEXT_PARALLEL_SIZE", "CP_SIZE"),
    "ep": ("EXPERT_MODEL_PARALLEL_SIZE", "EXPERT_PARALLEL_SIZE", "EP_SIZE"),
    "pp": ("PIPELINE_MODEL_PARALLEL_SIZE", "PIPELINE_PARALLEL_SIZE", "PP_SIZE"),
}
_RANKS = {
    "dp": ("DATA_PARALLEL_RANK", "DP_RANK"),
    "fsdp": ("FSDP_RANK",),
    "tp": ("TENSOR_MODEL_PARALLEL_RANK", "TENSOR_PARALLEL_RANK", "TP_RANK"),
    "pp": ("PIPELINE_MODEL_PARALLEL_RANK", "PIPELINE_PARALLEL_RANK", "PP_RANK"),
    "cp": ("CONTEXT_PARALLEL_RANK", "CP_RANK"),
    "ep": ("EXPERT_MODEL_PARALLEL_RANK", "EXPERT_PARALLEL_RANK", "EP_RANK"),
}
_declared: dict[str, int] = {}
"""What the program declared: `coordinates` fills it, and takes out again what is given as None."""


def coordinates(**axes: int | None) -> dict[str, int]:
    """Declares this process's place on the parallel axes, where no DeviceMesh shows it: ``memguard.coordinates(pp=3)``.

    Recordings, exported metrics, reports and findings carry it. May be called at any time, before or after the guard
    begins; a declared axis takes precedence over a DeviceMesh and the environment.

    Args:
        **axes: Positions from 0, of ``dp``, ``fsdp``, ``tp``, ``pp``, ``cp`` and ``ep``; None forgets an axis.

    Returns:
        Everything that was declared so far; a copy.

    Raises:
        TypeError: An unknown axis, or a position that is not an int.
        ValueError: A negative position.
    """
    for axis, position in axes.items():
        if axis not in AXES:
            near = difflib.get_close_matches(axis, AXES, 1)
            hint = f" (did you mean {near[0]!r}?)" if near else ""
            raise TypeError(f"memguard.coordinates has no axis {axis!r}{hint}; the axes are {', '.join(AXES)}")
        if position is not None and (isinstance(position, bool) or not isinstance(position, int)):
            raise TypeError(f"memguard.coordinates takes positions as ints, got {axis}={position!r}")
        if position is not None and position < 0:
            raise ValueError(f"memguard.coordinates counts positions from 0, got {axis}={position}")
    for axis, position in axes.items():
        if position is None:
            _declared.pop(axis, None)
        else:
            _declared[axis] = position
    return dict(_declared)


def declared() -> dict[str, int]:
    """What the program declared so far; a copy."""
    return dict(_declared)


def in_environment(environment: Mapping[str, str], rank: int, world_size: int) -> dict[str, int]:
    """The place that a Megatron-style environment tells.

    ``TENSOR_MODEL_PARALLEL_RANK`` and its like are taken as they are. From sizes (``TENSOR_MODEL_PARALLEL_SIZE``,
    ``PIPELINE_MODEL_PARALLEL_SIZE``, ``CONTEXT_PARALLEL_SIZE``, ``EXPERT_MODEL_PARALLEL_SIZE``, or ``TP_SIZE`` and its
    like) the place follows by Megatron's own order of ranks, tp-cp-ep-dp-pp, where the sizes divide the world.

    Args:
        environment: The process's variables.
        rank: This process's rank.
        world_size: How many there are.
    """
    found = _from_sizes(environment, rank, world_size)
    for axis, names in _RANKS.items():
        position = _first(environment, names)
        if position is not None:
            found[axis] = position
    return found


def _from_sizes(environment: Mapping[str, str], rank: int, world_size: int) -> dict[str, int]:
    sizes = {axis: size for axis, names in _SIZES.items() if (size := _first(environment, names))}
    if not any(size > 1 for size in sizes.values()):
        return {}
    tp, cp, ep, pp = (sizes.get(axis, 1) for axis in ("tp", "cp", "ep", "pp"))
    if world_size % (tp * cp * pp) or (world_size // pp) % (tp * ep):
        return {}
    data = world_size // (tp * cp * pp)
    places = {
        "tp": rank % tp,
        "cp": rank // tp % cp,
        "dp": rank // (tp * cp) % data,
        "pp": rank // (world_size // pp),
        "ep": rank // tp % ep,  # experts are spread over the ranks of a stage that are alike in tp
    }
    sizes = {"tp": tp, "cp": cp, "dp": data, "pp": pp, "ep": ep}
    return {axis: place for axis, place in places.items() if sizes[axis] > 1}


def _first(environment: Mapping[str, str], names: tuple[str, ...]) -> int | None:
    return next((int(value) for name in names if (value := environment.get(name, "")).isdigit()), None)


def places_in(value: object) -> dict[str, int]:
    """A recording's coordinates, checked: it may come from a stranger."""
    if not isinstance(value, dict):
        return {}
    return {axis: place for axis in AXES if type(place := value.get(axis)) is int and place >= 0}
