"""This rank's place on the parallel axes, as torch.distributed tells it: process groups, DeviceMesh, DTensors, DDP.

A DeviceMesh describes the process group of each named dimension as ``mesh_<name>``; Megatron describes its own as
``TENSOR_MODEL_PARALLEL_GROUP`` and its like. A mesh of one dimension over all ranks shares the world's group, and is
found on the model's DTensors; a pipeline has none, and its mesh or stage is found among the program's objects.
"""

from __future__ import annotations

import gc
import itertools
import os
import sys
from collections.abc import Iterable
from typing import Any

import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from memguard.axes import declared, in_environment

_NAMES = {
    "dp": "dp", "ddp": "dp", "data": "dp", "data_parallel": "dp", "dp_replicate": "dp", "replicate": "dp",
    "fsdp": "fsdp", "dp_shard": "fsdp", "shard": "fsdp", "fully_shard": "fsdp",
    "tp": "tp", "tensor": "tp", "tensor_parallel": "tp", "model": "tp", "mp": "tp", "tensor_model_parallel": "tp",
    "pp": "pp", "pipe": "pp", "pipeline": "pp", "stage": "pp", "pipeline_parallel": "pp",
    "pipeline_model_parallel": "pp",
    "cp": "cp", "context": "cp", "context_parallel": "cp", "sp": "cp", "sequence": "cp",
    "ep": "ep", "expert": "ep", "expert_parallel": "ep", "expert_model_parallel": "ep",
}  # fmt: skip
_MESHES, _PIPELINES = "torch.distributed.device_mesh", "torch.distributed.pipelining.stage"
_STAGES = ("PipelineStage", "_PipelineStage")
"""Modules whose objects tell a place, where they are loaded, and the classes of the second one."""
_ASKED = 64
"""Parameters of a model that are read for their DeviceMesh."""
_UNNAMED = {1: ("fsdp",), 2: ("dp", "fsdp")}
"""Dimensions of a mesh without names: `fully_shard` takes one for sharding, or two for replicas of shards."""


def find_coordinates(models: Iterable[nn.Module], rank: int, world_size: int) -> dict[str, int]:
    """This rank's place on each axis that is known.

    What the program declared counts most, then process groups and meshes, then a Megatron-style environment.
    """
    found = in_environment(os.environ, rank, world_size) if world_size > 1 else {}
    if dist.is_available() and dist.is_initialized():
        found.update(_in_models(models))
        found.update(_in_groups())
    found.update(declared())
    return found


def search_objects() -> dict[str, int]:
    """From the named meshes and the pipeline stages that the program holds, wherever that is.

    Asks Python's collector who refers to their classes: some 20 ms, in which no other thread runs.
    """
    if not dist.is_available() or not dist.is_initialized():
        return {}
    stages = [kind for name in _STAGES if isinstance(kind := getattr(sys.modules.get(_PIPELINES), name, None), type)]
    mesh = getattr(sys.modules.get(_MESHES), "DeviceMesh", None)
    kinds = [*stages, mesh] if isinstance(mesh, type) else stages
    found: dict[str, int] = {}
    for each in gc.get_referrers(*kinds) if kinds else ():
        if type(each) is mesh and each.mesh_dim_names:
            for axis, place in _in_mesh(each).items():
                found.setdefault(axis, place)
        elif type(each) in stages and getattr(each, "group_size", 1) > 1:
            found.setdefault("pp", int(each.group_rank))
    return found


def _in_groups() -> dict[str, int]:
    """From the descriptions of this process's groups; the first group of an axis counts."""
    found: dict[str, int] = {}
    # The registry of groups; checked in torch 2.13, absent is empty.
    ranks = getattr(getattr(dist.distributed_c10d, "_world", None), "pg_group_ranks", None) or {}
    own = dist.get_rank()
    for group, members in list(ranks.items()):
        axis = _axis_of(str(getattr(group, "group_desc", "")))
        if axis is not None and own in members:
            found.setdefault(axis, int(members[own]))
    return found


def _axis_of(description: str) -> str | None:
    name = description.lower()
    if name.startswith("mesh_"):
        return _NAMES.get(name[len("mesh_") :])
    return _NAMES.get(name[: -len("_group")]) if name.endswith("_group") else None


def _in_models(models: Iterable[nn.Module]) -> dict[str, int]:
    found: dict[str, int] = {}
    for model in models:
        for each in (model, *model.children()):
            if isinstance(each, DistributedDataParallel):
                found.setdefault("dp", dist.get_rank(each.process_group))
                break
        for parameter in itertools.islice(model.parameters(), _ASKED):
            mesh = getattr(parameter, "device_mesh", None)
            if mesh is not None:
                for axis, place in _in_mesh(mesh).items():
                    found.setdefault(axis, place)
                break
    return found


def _in_mesh(mesh: Any) -> dict[str, int]:
    root = getattr(mesh, "_get_root_mesh", None)  # private; checked in torch 2.13
    whole = root() if callable(root) else mesh
    place = whole.get_coordinate()
    names = whole.mesh_dim_names or _UNNAMED.get(whole.ndim, ())
    if place is None:
        return {}
    return {axis: int(at) for name, at in zip(names, place, strict=False) if (axis := _NAMES.get(name.lower()))}
