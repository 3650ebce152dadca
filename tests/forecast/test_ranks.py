"""Several processes: single ranks beside the real allocator, which ranks are alike, and what is said of them."""

import functools
import subprocess
import sys

import pytest
import torch
from torch import nn

import memguard
from memguard.errors import MemGuardError
from memguard.forecast import forecast_of
from memguard.forecast.child import in_child
from memguard.forecast.fakes import process_group
from memguard.forecast.fakes.sharding_speed import replace
from memguard.forecast.ranks import find_roles
from memguard.forecast.session import trace
from memguard.forecast.setting import Setting
from memguard.forecast.trace import Event, Kind, Mesh, Trace
from tests.bench import published_ranks
from tests.bench.forecast_ranks import forecast
from tests.bench.ranks_programs import Case

pytest.importorskip("torch.testing._internal.distributed.fake_pg")


def trace_of(nbytes, mesh=None, cuts=()):
    """One allocation."""
    return Trace(
        events=[Event(Kind.ALLOC, 0, nbytes, 0, 0)],
        sites=[],
        owners=["inputs"],
        steps=1,
        compute_capability=(9, 0),
        torch_version="2.13",
        operators=1,
        mesh=mesh,
        cuts=cuts,
    )


def roles(sizes, mesh=None, cuts=()):
    """Roles of ranks that take these bytes, and which ranks were traced."""
    traced = set()

    def trace(rank):
        traced.add(rank)
        return trace_of(sizes[rank], mesh, cuts)

    found = find_roles(len(sizes), trace, traced.update)
    return [(role.name, role.rank, role.count) for role in found], traced


def test_ranks_that_are_alike_are_traced_once():
    """The first and the last are the same: so are all between."""
    assert roles([7] * 64) == ([("", 0, 64)], {0, 63})


def test_the_place_where_ranks_begin_to_differ_is_found():
    """A tensor that five of eight ranks share: the others have none of it."""
    found, _ = roles([7] * 5 + [3] * 3)
    assert found == [("rank 0 to 4", 0, 5), ("rank 5 to 7", 5, 3)]


def test_stages_of_a_pipeline_are_all_different_and_their_replicas_alike():
    """Along one dimension of the mesh all differ, along the other none: one rank of each stage is traced."""
    mesh = Mesh(names=("pp", "dp"), shape=(4, 16), ranks=tuple(range(64)))
    found, traced = roles([100 - rank // 16 for rank in range(64)], mesh)
    assert found == [("pp 0 (first)", 0, 16), ("pp 1", 16, 16), ("pp 2", 32, 16), ("pp 3 (last)", 48, 16)]
    assert traced == {0, 15, 16, 32, 48}


def test_two_ends_that_differ_from_a_middle_that_is_alike():
    """Roles in the middle are one interval, whatever the ends are."""
    found, _ = roles([9, 5, 5, 5, 5, 5, 5, 8])
    assert found == [("rank 0 (first)", 0, 1), ("rank 1 to 6", 1, 6), ("rank 7 (last)", 7, 1)]


ROW = Mesh(names=("dp",), shape=(512,), ranks=tuple(range(512)))


def test_where_shards_become_smaller_ranks_are_not_searched():
    """128,256 rows on 512 ranks: 510 shards of 251 rows, one of 246, one of none. Both sides of each cut are traced."""
    found, traced = roles([251] * 510 + [246, 0], ROW, cuts=(("dp", 510), ("dp", 511)))
    assert found == [("dp 0 to 509", 0, 510), ("dp 510", 510, 1), ("dp 511 (last)", 511, 1)]
    assert traced == {0, 509, 510, 511}


def test_ranks_that_differ_elsewhere_than_at_a_cut_are_found_too():
    """A cut that makes no difference parts no ranks, and one that is not known is searched."""
    found, _ = roles([7] * 100 + [3] * 412, ROW, cuts=(("dp", 400),))
    assert found == [("dp 0 to 99", 0, 100), ("dp 100 to 511", 100, 412)]


def build_uneven():
    from torch.distributed.fsdp import fully_shard

    torch.distributed.init_process_group("nccl")
    mesh = torch.distributed.init_device_mesh("cuda", (8,), mesh_dim_names=("dp",))
    model = nn.Sequential(nn.Linear(64, 20), nn.Linear(20, 64), nn.Linear(64, 20)).cuda()
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters())

    def step():
        model(torch.randn(8, 64, device="cuda")).sum().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return model, optimizer, step


def test_a_trace_tells_from_which_rank_on_shards_are_smaller():
    """20 rows on 8 ranks are six shards of three, one of two, one of none; 64 divide."""
    found = in_child(lambda: trace(build_uneven, Setting(steps=1, processes=8)))
    assert found.cuts == (("dp", 6), ("dp", 7))


def told(traced):
    """Events with their owners and places, whatever numbers blocks have."""
    numbers = {}
    return [
        (kind, numbers.setdefault(block, len(numbers)), traced.owners[block], nbytes, stream, traced.sites[site])
        for kind, block, nbytes, stream, site in traced.events
    ]


@pytest.mark.parametrize("rank", [0, 6, 7])
def test_what_is_worked_out_once_gives_the_same_trace(monkeypatch, rank):
    """A rank's own chunk of each parameter, and the sharding of a list's parameters that are alike: event by event."""
    quick = in_child(lambda: trace(build_uneven, Setting(steps=2, processes=8, rank=rank)))
    monkeypatch.setattr(process_group, "hasten_sharding", lambda: None)
    slow = in_child(lambda: trace(build_uneven, Setting(steps=2, processes=8, rank=rank)))
    assert told(quick) == told(slow)


def test_a_replaced_function_runs_for_those_who_imported_it_before():
    """Its code is exchanged, not its name."""

    def swapped():
        from torch.distributed import is_available

        replace(is_available, lambda before: lambda: (before(), "replaced"))
        return is_available()

    assert in_child(swapped) == (True, "replaced")


SEEN = {
    Case("llama", "fsdp", "mixed", checkpointed=True): {"allocated": 387968000, "reserved": 864026624},
    Case("llama", "fsdp kept", "mixed"): {"allocated": 707665920, "reserved": 998244352},
    Case("gpt", "fsdp1", "mixed", checkpointed=True, rank=7): {"allocated": 184592896, "reserved": 356515840},
    Case("gpt", "ddp view"): {"allocated": 944249856, "reserved": 994050048},
    Case("gpt", "context rotated", "autocast", rank=3): {"allocated": 771329024, "reserved": 796917760},
}


@pytest.mark.parametrize("case", SEEN, ids=str)
def test_a_rank_takes_what_the_real_allocator_gave_it(case):
    """Peaks of allocated and reserved memory of the null GPU (torch 2.15), to the byte."""
    assert forecast(case) == SEEN[case]


def build_sharded():
    from torch.distributed.fsdp import fully_shard

    model = nn.Sequential(nn.Linear(1024, 1024, bias=False), nn.Linear(1024, 1024, bias=False)).cuda()
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def step():
        model(torch.randn(8, 1024, device="cuda")).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    return model, optimizer, step


def test_fully_sharded_training_is_forecast_by_the_call():
    """Each of eight ranks holds an eighth of the parameters; NCCL's memory is said and taken off."""
    found = memguard.forecast(model=build_sharded, nproc=8, device="h100")
    owners = {share.name: share.bytes for share in found.owners}
    assert owners["parameters"] == 2 * 1024 * 1024 * 4 // 8
    assert owners["communication buffers"] >= 1024 * 1024 * 4
    [share] = found.ranks
    assert (share.role, share.count) == ("", 8)
    assert found.communication_bytes[0] > 0
    assert found.usable_bytes == found.device_total_bytes - found.context_bytes - found.communication_bytes[1]
    assert "All 8 ranks are alike." in str(found)


def blocks_of(layout, optimizer_first=False):
    """A model of four blocks, replicated, or sharded by hand, on each of its ranks."""

    def build():
        from torch.distributed.fsdp import fully_shard

        torch.distributed.init_process_group("nccl")
        blocks = [nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 512)) for _ in range(4)]
        model = nn.Sequential(*blocks).cuda()
        if optimizer_first:
            optimizer = torch.optim.AdamW(model.parameters())
        if layout == "replicated":
            model = nn.parallel.DistributedDataParallel(model)
        else:
            for block in model:
                fully_shard(block, reshard_after_forward=layout == "sharded")
            fully_shard(model)
        if not optimizer_first:
            optimizer = torch.optim.AdamW(model.parameters())

        def step():
            model(torch.randn(64, 512, device="cuda")).sum().backward()
            optimizer.step()
            optimizer.zero_grad()

        return model, optimizer, step

    return build


@functools.cache
def suggested(layout, **options):
    """What is suggested for it, by name: reserved bytes."""
    found = memguard.forecast(model=blocks_of(layout, **options), nproc=2, device="64MiB", suggest=True, steps=2)
    return {suggestion.name: suggestion.reserved_peak_bytes for suggestion in found.suggestions}


def test_sharding_is_suggested_with_what_it_takes_when_it_is_written():
    """PyTorch's own code shards a replicated model block by block, and the figure is that of doing so by hand."""
    by_hand = memguard.forecast(model=blocks_of("sharded"), nproc=2, device="64MiB", suggest=False, steps=2)
    found = suggested("replicated")
    assert found["sharding"] == by_hand.reserved_peak_bytes
    assert found["sharding, with shards on the host"] < found["sharding"]


def test_what_would_make_ranks_fit_is_traced_if_it_is_asked_for():
    """Of hundreds of ranks each trace takes its time; the text says how to ask."""
    found = memguard.forecast(model=blocks_of("replicated"), nproc=2, device="64MiB", steps=2)
    assert found.suggestions == () and "--suggest" in str(found)


def test_an_optimizer_that_was_made_before_gets_the_shards():
    """Its states are of the shards, no longer of whole parameters."""
    assert suggested("replicated", optimizer_first=True)["sharding"] < 1.2 * suggested("replicated")["sharding"]


def test_resharding_is_suggested_where_parameters_stay_gathered():
    """And not where they do not."""
    by_hand = memguard.forecast(model=blocks_of("sharded"), nproc=2, device="64MiB", suggest=False, steps=2)
    assert suggested("kept")["resharding after the forward"] == by_hand.reserved_peak_bytes
    assert not {"resharding after the forward", "sharding"} & suggested("sharded").keys()


def test_a_call_with_processes_needs_a_function_that_builds():
    """A model that exists already belongs to one process."""
    with pytest.raises(TypeError, match="each rank"):
        memguard.forecast(lambda: None, model=nn.Linear(2, 2), nproc=8, device="h100")


@pytest.mark.parametrize("options", [{"nproc": 0}, {"nnodes": 2}])
def test_numbers_of_processes_that_make_no_sense_are_refused(options):
    """At least one process; nodes only with processes."""
    with pytest.raises(ValueError, match="nproc"):
        forecast_of(lambda _: build_sharded(), device="h100", **options)


def test_code_that_asks_for_other_processes_is_told_so():
    """A world size that is written down must be the one that is forecast."""

    def build(_):
        torch.distributed.init_process_group("nccl", world_size=4, rank=0)

    with pytest.raises(MemGuardError, match="--nproc 4"):
        forecast_of(build, device="h100", nproc=8)


def test_code_may_ask_for_its_rank_before_anybody_has_made_the_group():
    """The function of a script of which the main part makes it; making it afterwards changes nothing."""

    def build(_):
        assert torch.distributed.get_rank() < torch.distributed.get_world_size() == 8
        torch.distributed.init_process_group("nccl")
        return nn.Linear(1024, 1024).cuda(), None, lambda: None

    found = forecast_of(build, device="h100", nproc=8)
    assert found.allocated_peak_bytes >= 1024 * 1024 * 4


PROGRAM = """
import os
import torch
from torch import nn
from torch.distributed import get_rank, init_process_group


def make():
    init_process_group("nccl")
    assert get_rank() == int(os.environ["RANK"]) == torch.cuda.current_device()
    model = nn.Linear(1024, 1024 * (2 if get_rank() == 0 else 1), device="cuda")

    def step():
        model(torch.randn(8, 1024, device="cuda")).sum().backward()

    return model, None, step
"""


def test_the_command_says_which_rank_is_the_highest_and_why(tmp_path):
    """A first rank with twice the parameters; functions that the file imported by name work."""
    (tmp_path / "train.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "memguard", "forecast", "train.py:make", "--nproc", "4", "--device", "h100"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "rank 0 (first)" in done.stdout
    assert "rank 1 to 3" in done.stdout
    assert "rank 0 (first) is the highest" in done.stdout


def test_traces_of_one_step_under_dispatch_modes_are_the_same(monkeypatch):
    """Selective checkpoints run operators from frames that come and go: none is a composite."""
    monkeypatch.setitem(published_ranks.SIZES, "8B", (512, 6, 8, 4, 1024))
    monkeypatch.setattr(published_ranks, "LENGTH", 256)
    monkeypatch.setattr(published_ranks, "WORDS", 4096)
    setting = Setting(steps=2, processes=8)
    first, *others = (
        in_child(lambda: trace(lambda: published_ranks.sharded("8B", 2, "selective"), setting)) for _ in range(3)
    )
    assert all(other.events == first.events for other in others)


@pytest.mark.filterwarnings("ignore:FSDP2-wrapped module")
def test_compiled_blocks_are_compiled_where_they_are_sharded_too(monkeypatch):
    """What fully_shard gathers goes through the compiler's own wrappers; nothing is counted as eager."""
    monkeypatch.setitem(published_ranks.SIZES, "8B", (512, 2, 8, 4, 1024))
    monkeypatch.setattr(published_ranks, "LENGTH", 256)
    monkeypatch.setattr(published_ranks, "WORDS", 4096)
    found = forecast_of(
        lambda _: published_ranks.sharded("8B", 2, "selective", compiled=True), nproc=2, device="h100", steps=1
    )
    assert found.notes == ()
    [share] = found.ranks
    assert share.count == 2


def build_offloaded():
    from torch.distributed.fsdp import CPUOffloadPolicy, fully_shard

    torch.distributed.init_process_group("nccl")
    model = nn.Sequential(nn.Linear(1024, 1024, bias=False), nn.Linear(1024, 1024, bias=False))
    for layer in model:
        fully_shard(layer, offload_policy=CPUOffloadPolicy())
    fully_shard(model, offload_policy=CPUOffloadPolicy())
    optimizer = torch.optim.AdamW(model.parameters())

    def step():
        model(torch.randn(8, 1024, device="cuda")).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    return model, optimizer, step


def test_parameters_offloaded_to_pinned_memory_are_not_on_the_gpu():
    """As the policy does by default: parameters, gradients and states are the host's, what is gathered is not."""
    found = memguard.forecast(model=build_offloaded, nproc=8, device="h100")
    owners = {share.name: share.bytes for share in found.owners}
    assert owners["communication buffers"] >= 1024 * 1024 * 4
    assert "parameters" not in owners
    assert "optimizer states" not in owners
