import json
import subprocess
import sys

import pytest

PROGRAM = """
import json, sys
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.testing._internal.distributed.fake_pg import FakeStore
from memguard.axes import coordinates
from memguard.integrations.parallel_axes import find_coordinates, search_objects

def at(rank, world_size, make):
    dist.init_process_group("fake", rank=rank, world_size=world_size, store=FakeStore())
    try:
        return find_coordinates(make(), rank, world_size)
    finally:
        dist.destroy_process_group()

def mesh(shape, names):
    def make():
        init_device_mesh("cpu", shape, mesh_dim_names=names)
        return []
    return make

def sharded():
    from torch.distributed.fsdp import fully_shard
    return [fully_shard(nn.Linear(8, 8), mesh=init_device_mesh("cpu", (8,)))]

def replicated():
    return [nn.parallel.DistributedDataParallel(nn.Linear(8, 8))]

def megatron():
    dist.new_group([1, 3, 5, 7], group_desc="PIPELINE_MODEL_PARALLEL_GROUP")
    dist.new_group([4, 5], group_desc="TENSOR_MODEL_PARALLEL_GROUP")
    dist.new_group([5, 7], group_desc="somebody else's")
    return []

def searched(hold):
    dist.init_process_group("fake", rank=2, world_size=4, store=FakeStore())
    try:
        held = hold()
        return search_objects()
    finally:
        dist.destroy_process_group()

def stage():
    from torch.distributed.pipelining import PipelineStage
    return {"first": PipelineStage(nn.Linear(4, 4), 2, 4, torch.device("cpu"))}

told = {
    "pipeline": searched(lambda: [init_device_mesh("cpu", (4,), mesh_dim_names=("pp",))]),
    "unnamed": searched(lambda: [init_device_mesh("cpu", (4,))]),
    "stage": searched(stage),
    "titan": at(13, 16, mesh((2, 2, 2, 2), ("pp", "dp_replicate", "dp_shard", "tp"))),
    "experts": at(5, 8, mesh((2, 4), ("dp", "ep"))),
    "whole": at(5, 8, sharded),
    "ddp": at(3, 4, replicated),
    "megatron": at(5, 8, megatron),
    "nothing": at(3, 4, list),
}
coordinates(pp=1)
told["declared"] = at(13, 16, mesh((2, 2, 4), ("pp", "dp", "tp")))
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def told() -> dict[str, dict[str, int]]:
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    answer: dict[str, dict[str, int]] = json.loads(done.stdout.splitlines()[-1])
    return answer


def test_a_device_mesh_tells_the_place_on_each_named_dimension(told: dict[str, dict[str, int]]) -> None:
    """From the process groups that the mesh made; dimensions of torchtitan's names among them."""
    assert told["titan"] == {"pp": 1, "dp": 1, "fsdp": 0, "tp": 1}
    assert told["experts"] == {"dp": 1, "ep": 1}


def test_a_mesh_over_all_ranks_is_found_on_the_models_parameters(told: dict[str, dict[str, int]]) -> None:
    """It shares the world's group; `fully_shard` without names shards over it."""
    assert told["whole"] == {"fsdp": 5}


def test_ddp_and_megatrons_groups_tell_the_place(told: dict[str, dict[str, int]]) -> None:
    """Replicas by DDP's group; Megatron's groups by their descriptions, others not at all."""
    assert told["ddp"] == {"dp": 3}
    assert told["megatron"] == {"pp": 2, "tp": 1}
    assert told["nothing"] == {}


def test_a_pipeline_is_found_among_the_programs_objects(told: dict[str, dict[str, int]]) -> None:
    """By its mesh, which shares the world's group, or by a stage of torch.distributed.pipelining without any mesh."""
    assert told["pipeline"] == {"pp": 2}
    assert told["stage"] == {"pp": 2}
    assert told["unnamed"] == {}


def test_what_is_declared_counts_more_than_a_mesh(told: dict[str, dict[str, int]]) -> None:
    """And the mesh tells the axes that were not declared."""
    assert told["declared"] == {"pp": 1, "dp": 1, "tp": 1}
