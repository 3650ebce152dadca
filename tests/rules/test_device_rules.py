"""What only a device and its driver show, in records made by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from memguard.records.claims import Claim
from memguard.records.facts import (
    CompiledGraphs,
    EmptyCacheCalls,
    InputSize,
    KeptOnHost,
    KeptOutputs,
    ModelCalled,
    PinnedCacheGrows,
    PinnedRounded,
    Place,
    WorkerObjects,
)
from memguard.records.findings import Severity
from memguard.records.stats import SlowStats, Stage
from memguard.rules.allocator_state import AllocatorThrash, Fragmentation, StreamHeld
from memguard.rules.arbiter import settle
from memguard.rules.cache_emptied import EmptyCacheInLoop, GraphPoolsGrow
from memguard.rules.capacity import LongestBatch, LowHeadroom
from memguard.rules.device_share import ForeignMemory
from memguard.rules.host_growth import HostGrowth
from memguard.rules.host_memory import PinnedGrowth, SharedMemory, WorkerGrowth
from memguard.rules.kept_storage import OutputsAccumulate
from tests.rules.evidence import AT, GIB, MIB, judge, record, run_of


def test_other_processes_that_the_driver_lists_are_told_at_once() -> None:
    """A list needs no second reading; what it hides is not counted."""
    run = run_of(slow=SlowStats(other_processes=((4242, 6 * GIB), (17, None))))
    (finding,) = judge(ForeignMemory(), *(record(i, device_used_bytes=18 * GIB) for i in range(5)), run=run)
    assert finding.bytes == 6 * GIB and "4242" in finding.message


@pytest.mark.parametrize(("batches", "seconds"), [(5, 0.1), (40, 0.1)])
def test_a_reading_that_never_changes_counts_once_it_stood_or_the_run_is_over(batches: int, seconds: float) -> None:
    """A device whose use is constant shows one number all the time."""
    readings = [record(i, time=i * seconds, device_used_bytes=18 * GIB) for i in range(batches)]
    (finding,) = judge(ForeignMemory(), *readings)
    assert finding.bytes == 6 * GIB


def grown_with_groups(*groups: int | None, each: int = GIB) -> list[Claim]:
    """What the rule says as groups are made, where each takes so much of the driver once it communicates."""
    rule, run, found = ForeignMemory(), run_of(), list[Claim]()
    for number in range(5 * len(groups)):
        now = groups[number // 5] or 0
        run.slow = SlowStats(
            process_used_bytes=12 * GIB + GIB // 2 + now * each,
            process_reserved_bytes=12 * GIB,
            process_groups=groups[number // 5],
        )
        used = 12 * GIB + GIB // 2 + now * each
        found += rule.observe(record(number, time=float(3 * number), device_used_bytes=used), run)
    return found


def test_growth_outside_of_the_allocator_is_that_of_the_process_groups_made_meanwhile() -> None:
    """The finding counts them and says what each took; the context, which was there before, is not theirs."""
    (finding,) = grown_with_groups(1, 1, 3)
    assert "2.00 GiB of that came as 2 process groups were made, 1.00 GiB for each" in finding.message
    assert "destroy_process_group" in finding.advice


def test_growth_that_did_not_come_with_process_groups_is_not_theirs() -> None:
    """Another library's, or another process's: the groups were there before."""
    rule, run, found = ForeignMemory(), run_of(), list[Claim]()
    for number in range(15):
        held = (number // 5) * GIB
        run.slow = SlowStats(process_used_bytes=12 * GIB + held, process_reserved_bytes=12 * GIB, process_groups=4)
        found += rule.observe(record(number, time=float(3 * number), device_used_bytes=12 * GIB + held), run)
    (finding,) = found
    assert "process group" not in finding.message and "nvidia-smi" in finding.advice


def test_a_reading_is_confirmed_by_the_next_one_alone() -> None:
    """However long it stands: later in a run readings are seconds apart, and what they show may be over."""
    rule, run = ForeignMemory(), run_of()
    stands = [
        found for i in range(60) for found in rule.observe(record(i, time=i / 10, device_used_bytes=18 * GIB), run)
    ]
    run.slow = SlowStats()
    (finding,) = rule.observe(record(60, time=6.0, device_used_bytes=18 * GIB), run)
    assert not stands and finding.bytes == 6 * GIB


@pytest.mark.parametrize("device", ["virtual:24GiB", "cuda:0"])
def test_what_this_process_held_between_two_looks_is_nobody_elses(device: str) -> None:
    """On a virtual device nobody else is; elsewhere the highest that this process ever reserved is taken off."""
    busy = [
        record(i, reserved_bytes=(12 + 8 * (i == 6)) * GIB, reserved_peak_bytes=20 * GIB, device_used_bytes=20 * GIB)
        for i in range(30)
    ]
    assert judge(ForeignMemory(), *busy, run=run_of(device=device)) == []


def test_memory_held_by_streams_is_told_although_flushes_let_it_go() -> None:
    """Each flush of the cache waits for the streams: one batch in ten holds nothing."""
    held = [record(i, active_peak_bytes=(10 + 4 * (i % 10 > 0)) * GIB) for i in range(40)]
    assert [finding.code for finding in judge(StreamHeld(), *held)] == ["MG404"]
    assert judge(StreamHeld(), *(replace(one, active_peak_bytes=11 * GIB) for one in held)) == []


def test_captured_graphs_are_told_by_their_pools() -> None:
    """Without torch.compile as well, with the line that captures and what the pools hold."""
    facts = [CompiledGraphs(**AT, graphs=0, pools=pools, pool_bytes=pools * 8 * MIB) for pools in (8, 24)]
    (finding,) = judge(GraphPoolsGrow(), *facts)
    assert finding.line == 41 and "16 new CUDA graphs" in finding.message and "192 MiB" in finding.message


def test_pinned_tensors_in_a_list_are_one_finding() -> None:
    """Not one of host memory as well, nor one of the cache that holds them."""
    kept = KeptOnHost(**AT, elements=12, bytes=12 * MIB, bytes_per_batch=1.0 * MIB, pinned=True)
    cache = PinnedCacheGrows(**AT, bytes=64 * MIB, active_bytes=64 * MIB, before_bytes=16 * MIB, since_batch=16)
    (finding,) = judge(PinnedGrowth(), kept, cache)
    assert (finding.line, finding.severity) == (41, Severity.INFO)
    assert judge(HostGrowth(), kept) == []
    assert [told.severity for told in judge(PinnedGrowth(), cache)] == [Severity.INFO]


def test_what_rounding_takes_of_pinned_memory_is_a_remark_with_the_setting_against_it() -> None:
    """Beside a cache that grows, which is another finding."""
    rounded = PinnedRounded(**AT, tensors=12, bytes=126 * MIB, block_bytes=192 * MIB)
    (finding,) = judge(PinnedGrowth(), rounded)
    assert (finding.severity, finding.bytes) == (Severity.INFO, 66 * MIB)
    assert "12 pinned tensors of 126 MiB" in finding.message and "pinned_max_round_threshold_mb" in finding.advice


def test_pinned_tensors_that_will_not_fit_are_a_warning() -> None:
    """Where the batches to come would fill what is free."""
    kept = KeptOnHost(**AT, elements=12, bytes=12 * MIB, bytes_per_batch=1.0 * MIB, pinned=True)
    run = run_of(slow=SlowStats(host_available_bytes=GIB), batches_left=5000)
    assert [finding.severity for finding in judge(PinnedGrowth(), kept, run=run)] == [Severity.WARNING]


def test_a_cache_in_workers_is_told_where_the_run_is_too_short_to_see_it_grow() -> None:
    """By its source alone, and once."""
    cache = WorkerObjects(**AT, workers=2, elements=0, bytes=0, grows=True)
    (finding,) = judge(WorkerGrowth(), cache)
    assert (finding.line, finding.severity, finding.bytes) == (41, Severity.INFO, None)
    run = run_of(slow=SlowStats(workers_rss_bytes=2 * GIB, num_workers=2, host_available_bytes=16 * GIB))
    rule = WorkerGrowth()
    found = [*rule.learn(cache, run), *rule.observe(record(1), run)]
    run.slow = replace(run.slow, workers_rss_bytes=3 * GIB)
    found += [*rule.observe(record(2), run), *rule.finish(run)]
    assert [told.bytes for told in found] == [GIB]


@pytest.mark.parametrize(
    ("then", "told"), [(3 * GIB, [GIB]), (2 * GIB + 16 * MIB, []), (2 * GIB, [None]), (None, [None])]
)
def test_a_cache_in_workers_whose_limit_is_the_whole_dataset(then: int | None, told: list[int | None]) -> None:
    """It is told as one without; but not where readings show that its samples are small."""
    cache = WorkerObjects(**AT, workers=2, elements=3200, bytes=0, grows=True)
    first = None if then is None else 2 * GIB
    run = run_of(slow=SlowStats(workers_rss_bytes=first, num_workers=2, host_available_bytes=16 * GIB))
    rule = WorkerGrowth()
    found = [*rule.learn(cache, run), *rule.observe(record(1), run)]
    run.slow = replace(run.slow, workers_rss_bytes=then)
    found += [*rule.observe(record(2), run), *rule.finish(run)]
    assert [one.bytes for one in found] == told
    assert all("its limit of 3200 is the whole dataset" in one.message for one in found)


def test_whole_segments_that_are_only_cached_are_a_remark_in_other_words() -> None:
    """Nothing is in pieces: PyTorch gives them back before it fails."""
    full = {"reserved_peak_bytes": 23 * GIB, "reserved_bytes": 23 * GIB, "active_peak_bytes": 15 * GIB}
    cached = [record(i, **full, device_used_bytes=23 * GIB, inactive_split_bytes=0) for i in range(60)]
    (finding,) = judge(Fragmentation(), *cached)
    assert finding.severity is Severity.INFO and "whole segments" in finding.message
    flushed = [replace(one, num_alloc_retries=int(one.batch == 10)) for one in cached]
    assert [finding.severity for finding in judge(Fragmentation(), *flushed)] == [Severity.INFO]
    pieces = [replace(one, inactive_split_bytes=4 * GIB) for one in flushed]
    (finding,) = judge(Fragmentation(), *pieces)
    assert finding.severity is Severity.WARNING and "in pieces, or in segments for other sizes" in finding.message


def test_what_private_pools_keep_is_no_matter_of_expandable_segments() -> None:
    """What is free in one of them is not released, whatever the settings."""
    full = [record(i, reserved_peak_bytes=23 * GIB, active_peak_bytes=15 * GIB) for i in range(60)]
    (finding,) = judge(Fragmentation(), CompiledGraphs(**AT, graphs=0, pools=2, pool_bytes=7 * GIB), *full)
    assert "private pools" in finding.message and "use_on_oom" in finding.advice
    (finding,) = judge(Fragmentation(), CompiledGraphs(**AT, graphs=0, pools=2, pool_bytes=GIB), *full)
    assert "private pools" not in finding.message and "expandable_segments" in finding.advice


def test_a_batch_far_longer_than_all_so_far_is_a_remark_where_it_is_far_above_the_limit() -> None:
    """A bent curve is no proof so far out; at what it is good for it is a warning."""

    def sized(longest: int) -> list[Claim]:
        return judge(
            LongestBatch(),
            *(
                thing
                for i, size in enumerate(range(100, 500, 10))
                for thing in (
                    InputSize(batch=i, stage=Stage.TRAIN, elements=size, largest_elements=longest),
                    record(i, allocated_peak_bytes=GIB // 4 + size * size * 8_000),
                )
            ),
        )

    assert [finding.severity for finding in sized(9_000)] == [Severity.INFO]
    assert [finding.severity for finding in sized(1_900)] == [Severity.WARNING]
    assert sized(1_500) == []


def sorted_batches(sizes: list[int]) -> list[Claim]:
    called = ModelCalled(batch=0, stage=Stage.TRAIN, place=Place(file="train.py", line=33))
    return judge(
        LongestBatch(),
        called,
        *(
            thing
            for i, size in enumerate(sizes)
            for thing in (
                InputSize(batch=i, stage=Stage.TRAIN, elements=size),
                record(i, allocated_peak_bytes=GIB // 4 + size * size * 8_000),
            )
        ),
    )


def test_batches_that_come_sorted_are_remarked_on_before_the_longest() -> None:
    """Though nothing tells how long that is; not where the device has room for half more, or they are not sorted."""
    (found,) = sorted_batches(list(range(100, 1_700, 40)))
    assert (found.severity, found.line) == (Severity.INFO, 33)
    assert "room for at most about 1,7" in found.message and found.batch < 36
    assert sorted_batches(list(range(100, 1_000, 40))) == []
    assert sorted_batches([*range(100, 1_000, 40), 900, *range(1_040, 1_700, 40)]) == []


def test_what_rests_on_numbers_alone_names_where_the_model_is_called() -> None:
    """In the stage of the batch; without such a call it has no line, as before."""
    called = ModelCalled(batch=0, stage=Stage.TRAIN, place=Place(file="train.py", line=33, function="fit"))
    near = [record(i, allocated_peak_bytes=24 * GIB - 64 * MIB) for i in range(10)]
    for facts, line in (((called,), 33), ((replace(called, stage=Stage.VALIDATION),), None), ((), None)):
        (found,) = judge(LowHeadroom(), *facts, *near)
        assert found.line == line and ("called at train.py:33 in fit()" in found.message) == bool(line)
    retried = [record(i, num_alloc_retries=1, allocated_peak_bytes=23 * GIB) for i in range(8)]
    told = judge(AllocatorThrash(), called, *retried)
    assert told and {finding.line for finding in told} == {33}


@pytest.mark.parametrize(("batches", "told"), [(8, []), (20, [Severity.INFO]), (60, [Severity.INFO])])
def test_a_short_run_in_pieces_is_told_at_its_end(batches: int, told: list[Severity]) -> None:
    """Fifty batches need no end to be told."""
    full = [
        record(i, reserved_peak_bytes=23 * GIB, active_peak_bytes=15 * GIB, device_used_bytes=23 * GIB)
        for i in range(batches)
    ]
    assert [finding.severity for finding in judge(Fragmentation(), *full)] == told
    assert judge(Fragmentation(), *full[:20], record(20)) == []  # it is over before the run is


@pytest.mark.parametrize(("at", "told"), [(2, []), (20, [Severity.INFO]), (70, [Severity.WARNING])])
def test_a_single_early_retry_is_a_line_at_the_end(at: int, told: list[Severity]) -> None:
    """In the first batches it may come from benchmarks; after fifty it is a warning at once."""
    full = {"allocated_peak_bytes": 23 * GIB, "reserved_bytes": 23 * GIB, "device_used_bytes": 23 * GIB}
    found = judge(AllocatorThrash(), *(record(i, num_alloc_retries=int(i == at), **full) for i in range(90)))
    assert [finding.severity for finding in found] == told


@pytest.mark.parametrize(("every", "told"), [(20, Severity.INFO), (3, Severity.WARNING)])
def test_a_flush_with_much_left_is_the_caches_doing(every: int, told: Severity) -> None:
    """A tensor that grows leaves blocks of every size behind: a line, a warning only where it is slow."""
    (found,) = judge(AllocatorThrash(), *(record(i, num_alloc_retries=int(i % every == 0)) for i in range(90)))
    assert found.severity is told
    assert "no longer asked for" in found.message
    assert "the device is full" not in found.message


def test_a_flush_within_a_share_of_the_device_is_the_caches_doing_whatever_others_hold() -> None:
    """`torch.cuda.set_per_process_memory_fraction`: what they hold is not of this process's share."""
    run = run_of(device_total_bytes=140 * GIB)
    grown = {"reserved_peak_bytes": 24 * GIB, "device_used_bytes": 110 * GIB}
    (found,) = judge(
        AllocatorThrash(), *(record(i, **grown, num_alloc_retries=int(i == 59)) for i in range(90)), run=run
    )
    assert found.severity is Severity.INFO
    assert "this process's share of the device with blocks" in found.message
    assert "14.0 GiB of 24.0 GiB are left" in found.message
    assert "torch.cat" in found.advice


def test_pieces_of_a_share_of_the_device_are_told_as_those_of_a_whole_one() -> None:
    """The rest of the device is not for this process."""
    full = {"reserved_peak_bytes": 23 * GIB, "active_peak_bytes": 15 * GIB, "device_used_bytes": 23 * GIB}
    run = run_of(device_total_bytes=140 * GIB)
    (found,) = judge(Fragmentation(), *(record(i, **full) for i in range(60)), run=run)
    assert "1.00 GiB of this process's share of the device are free" in found.message


def test_a_flush_is_no_small_matter_where_others_fill_the_device() -> None:
    """What another process holds is not left."""
    crowded = (record(i, num_alloc_retries=int(i % 20 == 0), device_used_bytes=24 * GIB) for i in range(90))
    (found,) = judge(AllocatorThrash(), *crowded)
    assert found.severity is Severity.CRITICAL


def test_few_calls_and_few_graphs_are_a_line_before_they_are_a_warning() -> None:
    """A short run shows the habit as well."""
    calls = [EmptyCacheCalls(**AT, calls=calls, batches=2 * calls, seconds=None) for calls in (6, 20)]
    assert [told.severity for told in judge(EmptyCacheInLoop(), *calls)] == [Severity.INFO, Severity.WARNING]
    graphs = [CompiledGraphs(**AT, graphs=graphs) for graphs in (8, 12, 15, 17, 18, 40)]
    assert [told.severity for told in judge(GraphPoolsGrow(), *graphs)] == [Severity.INFO, Severity.WARNING]


def test_roll_outs_between_steps_do_not_hide_the_calls() -> None:
    """Forwards of a roll-out count as batches; so the steps of training count besides, where it is they that call."""
    often = EmptyCacheCalls(**AT, calls=20, batches=900, optimizer_steps=80)
    (found,) = judge(EmptyCacheInLoop(), often)
    assert "20 times in 80 optimizer steps" in found.message
    assert not judge(EmptyCacheInLoop(), replace(often, optimizer_steps=200))
    assert not judge(EmptyCacheInLoop(), replace(often, optimizer_steps=None))


def test_open_files_are_told_by_who_keeps_them_or_by_their_number() -> None:
    """Once a container is named, their number says nothing more."""
    kept = KeptOnHost(**AT, elements=12, bytes=MIB, bytes_per_batch=0.1 * MIB, from_workers=True)

    def tell(*facts: KeptOnHost) -> list[int | None]:
        rule, run = SharedMemory(), run_of()
        found = [finding for fact in facts for finding in rule.learn(fact, run)]
        for i in range(200):
            run.slow = SlowStats(num_workers=2, open_files=50 + 4 * i)
            found += rule.observe(record(i), run)
        return [finding.line for finding in found]

    assert tell() == [None]
    assert tell(kept) == [41]


def test_a_growth_of_the_process_is_put_down_to_what_got_longer() -> None:
    """A container that is bounded, or does not tell its size, is named once the process itself has grown."""
    records = [record(i, host_rss_bytes=GIB + i * MIB) for i in range(200)]
    kept = KeptOnHost(**AT, elements=12, bytes=0, bytes_per_batch=0.0)
    (finding,) = judge(HostGrowth(), kept, *records, run=run_of(device="cuda:0"))
    assert finding.line == 41 and "got longer with every batch meanwhile" in finding.message
    assert judge(HostGrowth(), kept) == []


@pytest.mark.parametrize(
    ("capacity", "per_batch", "told"),
    [
        (1_000_000, 8.0 * MIB, [Severity.WARNING]),
        (1_000_000, 0.25 * MIB, [Severity.INFO]),
        (1_000, 8.0 * MIB, []),
        (None, 8.0 * MIB, []),
    ],
)
def test_a_bound_beyond_the_memory_is_told(capacity: int | None, per_batch: float, told: list[Severity]) -> None:
    """A replay buffer of a million frames: a warning where the memory is full soon, silence where the bound fits."""
    kept = KeptOnHost(**AT, elements=128, bytes=16 * MIB, bytes_per_batch=per_batch, bounded=True, capacity=capacity)
    run = run_of(slow=SlowStats(host_available_bytes=20 * GIB))
    found = judge(HostGrowth(), kept, run=run)
    assert [finding.severity for finding in found] == told
    assert all("1,000,000 elements" in f.message and "122 GiB" in f.message for f in found)


@pytest.mark.parametrize(("per_batch", "told"), [(2 * MIB, [Severity.INFO]), (1024, [])])
def test_a_cache_by_key_is_a_remark_while_nobody_knows_its_keys(per_batch: int, told: list[Severity]) -> None:
    """Each sample under its augmentation's random numbers: nothing ever comes twice."""
    cache = KeptOnHost(**AT, elements=12, bytes=12 * per_batch, bytes_per_batch=per_batch, bounded=True, by_key=True)
    assert [finding.severity for finding in judge(HostGrowth(), cache)] == told
    assert judge(HostGrowth(), replace(cache, by_key=False)) == []


def test_host_memory_that_holds_a_virtual_gpu_may_grow_with_it() -> None:
    """A growth at the end of a run is told on a real device; a virtual one's tensors lie in host memory."""
    records = [record(i, host_rss_bytes=GIB + i * MIB) for i in range(200)]
    assert [finding.code for finding in judge(HostGrowth(), *records, run=run_of(device="cuda:0"))] == ["MG701"]
    assert judge(HostGrowth(), *records, run=run_of(device="virtual:24GiB")) == []


@pytest.mark.parametrize(("device", "told"), [("cpu", ["MG301"]), ("cuda:0", ["MG701", "MG301"])])
def test_host_memory_that_grows_without_a_name_has_that_of_tensors_on_the_cpu(device: str, told: list[str]) -> None:
    """There tensors lie in the host's memory; those of a GPU explain none of it."""
    run = run_of(device=device)
    (host,) = judge(HostGrowth(), *(record(i, host_rss_bytes=GIB + i * MIB) for i in range(400)), run=run)
    rows = KeptOutputs(**AT, tensors=400, first_batch=0, bytes=400 * MIB, bytes_per_batch=1.0 * MIB, bounded=False)
    (kept,) = judge(OutputsAccumulate(), rows, run=run)
    assert [claim.code for claim in settle([host, kept])] == told


@pytest.mark.parametrize("device", ["cuda:0", "virtual:1GiB"])
def test_a_cache_that_goes_on_to_the_end_is_told_sooner_and_beside_a_virtual_gpu(device: str) -> None:
    """It accounts for what the process grew by, tensors of the device apart; one that stopped growing does not."""
    kept = KeptOnHost(**AT, elements=768, bytes=48 * MIB, bytes_per_batch=4.0 * MIB, bounded=True)
    records = [record(i, host_rss_bytes=GIB + 4 * i * MIB, allocated_end_bytes=200 * MIB) for i in range(100)]
    (finding,) = judge(HostGrowth(), kept, *records, run=run_of(device=device))
    assert (finding.line, finding.severity) == (41, Severity.INFO)
    full = [record(i, host_rss_bytes=GIB + 4 * min(i, 60) * MIB, allocated_end_bytes=0) for i in range(100)]
    assert judge(HostGrowth(), kept, *full, run=run_of(device=device)) == []
    tensors = [record(i, host_rss_bytes=GIB + 4 * i * MIB, allocated_end_bytes=4 * i * MIB + 1) for i in range(100)]
    assert judge(HostGrowth(), kept, *tensors, run=run_of(device="virtual:1GiB")) == []


def test_a_share_of_the_device_has_an_edge_of_its_own() -> None:
    """A process that may take a quarter of the device, and takes nearly all of that, is told what is left of it."""
    run = run_of(limit_bytes=6 * GIB)
    near = {"allocated_peak_bytes": 6 * GIB - 64 * MIB, "device_used_bytes": 20 * GIB}
    (found,) = judge(LowHeadroom(), *(record(i, **near) for i in range(10)), run=run)
    assert found.bytes == 64 * MIB and "64.0 MiB of 6.00 GiB are left" in found.message
    assert judge(LowHeadroom(), *(record(i, allocated_peak_bytes=5 * GIB) for i in range(10)), run=run) == []


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("grows_bytes", [0, 8 * MIB, 64 * MIB])
def test_an_edge_that_a_known_growth_leads_to_is_not_one_of_batch_size(grows_bytes: int, known: bool) -> None:
    """No smaller batch would help, and what keeps is told; a growth that nobody knows of is told at the edge."""
    kept = KeptOutputs(**AT, tensors=20, first_batch=0, bytes=GIB, bytes_per_batch=64.0 * MIB)
    near = {"allocated_peak_bytes": 23 * GIB + 600 * MIB}
    records = [record(i, allocated_end_bytes=20 * GIB + grows_bytes * i, **near) for i in range(24)]
    told = judge(LowHeadroom(), *([kept] if known else []), *records)
    assert bool(told) is not (known and grows_bytes == 64 * MIB)


def test_a_reading_older_than_a_flush_of_the_cache_is_not_the_memory_of_others() -> None:
    """What the driver last saw was this process's own cache; what others do hold is still told, with the same room."""
    used: dict[str, object] = {"device_used_bytes": 23 * GIB + 800 * MIB}
    before = [record(i, allocated_peak_bytes=20 * GIB, reserved_bytes=23 * GIB, **used) for i in range(4)]
    after = [record(i, allocated_peak_bytes=12 * GIB, reserved_bytes=12 * GIB, **used) for i in range(4, 10)]
    assert judge(LowHeadroom(), *before, *after) == []
    (found,) = judge(LowHeadroom(), *after)
    assert "224 MiB of 24.0 GiB are left (11.8 GiB belong to others" in found.message


def test_a_reading_of_the_driver_is_compared_with_what_pytorch_had_reserved_then() -> None:
    """An old reading of a full device, all its own, is no memory of others once the cache is flushed."""
    flushed = {"allocated_peak_bytes": 6 * GIB, "reserved_bytes": 6 * GIB, "device_used_bytes": 23 * GIB}
    records = [record(i, reserved_peak_bytes=6 * GIB, **flushed) for i in range(10)]
    own = run_of(slow=SlowStats(device_used_bytes=23 * GIB, process_reserved_bytes=22 * GIB))
    assert judge(LowHeadroom(), *records, run=own) == []
    others = run_of(slow=SlowStats(device_used_bytes=23 * GIB, process_reserved_bytes=5 * GIB))
    (found,) = judge(LowHeadroom(), *records, run=others)
    assert "18.0 GiB belong to others" in found.message
