from typing import Any

import pytest

from memguard.guards.empty_cache import CacheGuard
from memguard.records.stats import BatchRecord, MemoryStats, Run, SlowStats, Stage
from memguard.text.units import GIB
from tests.fakes import MIB, ScriptedBackend


class FullDevice(ScriptedBackend):
    """A device with some memory cached and some free."""

    def __init__(self, reserved: int, allocated: int) -> None:
        super().__init__()
        self._stats = MemoryStats(reserved_bytes=reserved, allocated_bytes=allocated, inactive_split_bytes=0)

    def read(self) -> MemoryStats:
        return self._stats


def record(batch: int) -> BatchRecord:
    return BatchRecord(batch=batch, stage=Stage.TRAIN, time=0, seconds=0)


def at_validation(guard: CacheGuard, **run: Any) -> list[bool]:
    return [
        guard.at_edge(Stage.VALIDATION, batch=1, starts=starts, run=Run(device="x", **run)) is not None
        for starts in (True, False)
    ]


def test_a_number_empties_every_so_many_batches() -> None:
    """With the bytes that went back, each time."""
    backend = ScriptedBackend()
    guard = CacheGuard(3, backend)
    acts = [guard.after_batch(record(batch)) for batch in range(7)]
    assert [act.bytes if act else None for act in acts] == [None, None, 5 * MIB, None, None, 5 * MIB, None]
    assert backend.emptied == 2
    account = guard.account()
    assert account is not None and "2 times" in account and "10.0 MiB" in account


def test_validation_means_both_its_edges() -> None:
    """And nothing else."""
    backend = ScriptedBackend()
    guard = CacheGuard("validation", backend)
    assert at_validation(guard) == [True, True]
    assert guard.after_batch(record(0)) is None and guard.at_epoch_end(batch=1) is None
    assert guard.at_edge(Stage.TRAIN, batch=0, starts=True, run=Run(device="x")) is None


def test_epoch_means_its_end() -> None:
    """Once an epoch."""
    guard = CacheGuard("epoch", ScriptedBackend())
    assert guard.at_epoch_end(batch=7) is not None
    assert at_validation(guard) == [False, False]


def test_never_never_acts() -> None:
    """The default."""
    backend = ScriptedBackend()
    guard = CacheGuard("never", backend)
    at_validation(guard), guard.after_batch(record(0)), guard.at_epoch_end(batch=0)
    assert backend.emptied == 0 and guard.account() is None


@pytest.mark.parametrize(
    ("reserved", "allocated", "acts"),
    [(23.5, 10, True), (23.5, 23, False), (12, 4, False)],
    ids=["much to gain and nearly full", "little to gain", "room enough"],
)
def test_auto_acts_only_when_it_would_help(reserved: float, allocated: float, acts: bool) -> None:
    """What can come back is large, and the device is nearly full."""
    guard = CacheGuard("auto", FullDevice(int(reserved * GIB), int(allocated * GIB)))
    assert at_validation(guard, device_total_bytes=24 * GIB) == [acts, acts]


def test_auto_counts_what_others_hold() -> None:
    """A device that other processes fill is full too."""
    guard = CacheGuard("auto", FullDevice(12 * GIB, 4 * GIB))
    slow = SlowStats(device_used_bytes=23 * GIB)
    assert at_validation(guard, device_total_bytes=24 * GIB, slow=slow) == [True, True]


@pytest.mark.parametrize(("used", "acts"), [(23, True), (14, False), (None, False)])
def test_auto_acts_at_the_edge_of_a_phase_where_somebody_else_is_on_the_device(used: int | None, acts: bool) -> None:
    """An engine that takes turns with the training; alone, the next phase takes what it needs from the cache."""
    backend = FullDevice(13 * GIB, 4 * GIB)
    run = Run(device="x", device_total_bytes=24 * GIB, slow=SlowStats(device_used_bytes=used and used * GIB))
    told = CacheGuard("auto", backend).at_phase_edge(Stage.TRAIN, batch=3, run=run)
    assert (told is not None) is acts and backend.emptied == acts
    alone = FullDevice(23 * GIB, 4 * GIB)
    run.slow = SlowStats(device_used_bytes=23 * GIB)
    assert CacheGuard("auto", alone).at_phase_edge(Stage.TRAIN, batch=3, run=run) is None
    assert CacheGuard("validation", backend).at_phase_edge(Stage.TRAIN, batch=3, run=run) is None


def test_auto_with_several_ranks_tells_once_and_leaves_it() -> None:
    """One rank's need is not the others': it says what it saw and what would let all act together."""
    backend = FullDevice(int(23.5 * GIB), 4 * GIB)
    guard = CacheGuard("auto", backend)
    run = Run(device="x", device_total_bytes=24 * GIB, rank=3, world_size=8)
    told = [guard.at_edge(Stage.VALIDATION, batch=1, starts=starts, run=run) for starts in (True, False)]
    assert backend.emptied == 0 and guard.account() is None
    assert told[0] is not None and told[0].code == "MG002" and "left the cache" in told[0].message
    assert told[1] is None


def test_every_so_many_batches_are_the_same_on_every_rank() -> None:
    """What is recorded between the batches, on one rank and not on another, does not count."""
    guards = [CacheGuard(3, ScriptedBackend()) for _ in range(2)]
    batches = [record(number) for number in range(6)]
    spikes = [BatchRecord(batch=9, stage=stage, time=0, seconds=0) for stage in (Stage.OTHER, Stage.CHECKPOINT)]
    acts = [[guard.after_batch(each) is not None for each in batches] for guard in guards[:1]]
    with_spikes = [guards[1].after_batch(each) is not None for batch in batches for each in (batch, *spikes)]
    assert with_spikes[::3] == acts[0] and not any(with_spikes[1::3] + with_spikes[2::3])
