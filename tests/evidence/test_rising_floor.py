from __future__ import annotations

from collections.abc import Iterable

from torch import nn

from memguard.evidence.interface import ProbeContext
from memguard.evidence.sampling_budget import (
    FIRST_WAIT,
    LONG_RISES,
    LONG_WINDOW,
    LOOKS,
    PATIENCE,
    RISES,
    SETTLED,
    WINDOW,
    RisingFloorProbe,
)
from memguard.records.stats import Stage
from tests.rules.evidence import record

ENOUGH = WINDOW * (RISES + 1)


def asked(ends: Iterable[int | None], stage: Stage = Stage.TRAIN) -> list[int]:
    """The batches after which close looks were asked for."""
    watch, found = ProbeContext(), []
    probe = RisingFloorProbe(watch, lambda fact: None)
    for batch, end in enumerate(ends):
        watch.batch, before = batch, watch.forced_until
        probe.on_records([record(batch, allocated_end_bytes=end, stage=stage)])
        if watch.forced_until != before:
            assert watch.forced_until == watch.dense_until == batch + LOOKS
            found.append(batch)
    return found


def test_a_floor_that_rises_is_looked_at_closely() -> None:
    """However little comes with each batch: a kept loss is 512 bytes."""
    assert asked([1000] * 100 + [1000 + 512 * i for i in range(ENOUGH)]) == [100 + ENOUGH - 1]


def test_what_comes_with_every_twentieth_batch_is_looked_at_too() -> None:
    """And where it began to rise is known to a window."""
    level, rising = 10 * LONG_WINDOW, LONG_WINDOW * (LONG_RISES + 1)
    assert asked([1000] * level + [1000 + 512 * (i // 20) for i in range(rising)]) == [level + rising - 1]
    watch = ProbeContext()
    probe = RisingFloorProbe(watch, lambda fact: None)
    for batch in range(level + rising):
        watch.batch = batch
        probe.on_records([record(batch, allocated_end_bytes=1000 + 512 * max(batch - level, 0) // 20)])
    assert level <= (watch.rises_since or 0) <= level + LONG_WINDOW


def test_a_level_floor_and_one_that_falls_back_are_left_alone() -> None:
    """Batches of several sizes, epochs that end."""
    assert asked([1000 + 512 * (i % 7) for i in range(4000)]) == []
    assert asked([1000 + 512 * (i % (ENOUGH - WINDOW)) for i in range(4000)]) == []
    assert asked([1000 + 512 * (i % (LONG_RISES * LONG_WINDOW) // 20) for i in range(4000)]) == []


def test_a_floor_that_goes_on_rising_is_looked_at_ever_more_rarely() -> None:
    """A replay memory fills for long, and is no mistake."""
    first, second, third, *_ = asked([512 * i for i in range(8 * FIRST_WAIT)])
    assert second - first >= FIRST_WAIT and third - second >= 4 * FIRST_WAIT


def test_evaluation_and_a_device_without_numbers_ask_for_nothing() -> None:
    """Evaluation is looked at from its first batch; a host's memory has no floor that is exact."""
    assert asked([512 * i for i in range(200)], Stage.VALIDATION) == []
    assert asked([None] * (PATIENCE + 2)) == []


def test_a_jump_by_a_models_weights_is_looked_at_once_and_the_next_if_it_is_twice_as_high() -> None:
    """A copy of them may have come. Not in the first batches, nor where it is a small part of the device."""
    weights = 4 * (8 * 1000 + 1000)

    def jumps(ends: list[int], total: int | None = None) -> tuple[int, int]:
        watch = ProbeContext(device_total_bytes=total)
        probe = RisingFloorProbe(watch, lambda fact: None)
        probe.on_model(nn.Linear(8, 1000))
        for watch.batch, end in enumerate(ends):
            probe.on_records([record(watch.batch, allocated_end_bytes=end)])
        return watch.jumps, watch.forced_until

    first, third = 1000 + weights, 1000 + 3 * weights
    assert jumps([1000] * SETTLED + [first] * WINDOW) == (1, SETTLED + WINDOW)
    assert jumps([1000] * SETTLED + [first] * 100 + [third - weights] * 100)[0] == 1
    assert jumps([1000] * SETTLED + [first] * 100 + [third] * 100)[0] == 2
    assert jumps([1000] * 20 + [first] * 200) == jumps([1000] * SETTLED + [first - 1] * 100) == (0, 0)
    assert jumps([1000] * SETTLED + [first] * 100, 200 * weights) == (0, 0)
