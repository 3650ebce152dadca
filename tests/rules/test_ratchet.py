from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from memguard.rules.growth_test import GrowthTest, outlook
from tests.rules.series import (
    BATCHES,
    EPOCH,
    HEALTHY,
    LIMIT,
    Series,
    checkpoints,
    constant,
    leaking,
    lengths,
    saw_tooth,
)


def first_alarm(values: Series, *, epoch: int | None = EPOCH, run: int | None = BATCHES) -> int | None:
    ratchet, peak = GrowthTest(quick=True), 0.0
    for i, value in enumerate(values):
        peak = max(peak, value)
        if epoch and i and i % epoch == 0:
            ratchet.epoch_end()
        if value >= LIMIT:
            return None
        if ratchet.push(value) and outlook(
            ratchet,
            peak=peak,
            limit=LIMIT,
            batches_left=run - i if run else None,
            epoch_left=epoch - i % epoch if epoch else None,
            epoch_batches=epoch,
        ):
            return i
    return None


@pytest.mark.parametrize("epoch", [EPOCH, None])
@pytest.mark.parametrize("run", [BATCHES, 100_000])
@pytest.mark.parametrize("series", HEALTHY, ids=lambda series: series.__name__)
def test_no_healthy_series_alarms(series: Callable[[random.Random], Series], run: int, epoch: int | None) -> None:
    """Saw-teeth, lazy caches, noise, sorted lengths and bounded ramps never alarm, however long the run."""
    alarms = [seed for seed in range(4) if first_alarm(series(random.Random(seed)), epoch=epoch, run=run) is not None]
    assert alarms == []


@pytest.mark.parametrize("run", [BATCHES, 100_000])
@pytest.mark.parametrize(
    "series",
    [
        leaking(constant, 8),
        leaking(constant, 64),
        leaking(lengths, 16),
        leaking(saw_tooth, 16),
        leaking(checkpoints, 16),
        leaking(constant, 16, burst=50),
    ],
)
def test_leaks_that_would_fill_the_device_are_told_in_time(series: Callable[[random.Random], Series], run: int) -> None:
    """A steady leak is told before it used three quarters of the room that it had."""
    values = series(random.Random(0))
    full = next(i for i, value in enumerate(values) if value >= LIMIT)
    alarm = first_alarm(values, run=run)
    assert alarm is not None
    assert (full - alarm) / (full - 100) >= 0.2


@pytest.mark.parametrize("per_batch", [100, 150, 200])
def test_a_leak_that_fills_the_device_before_the_windows_are_full_is_told(per_batch: int) -> None:
    """From the first batch on, at 80 to 160 batches to the limit; where it ends soon enough to fit, it is not."""
    values = leaking(constant, per_batch, start=0)(random.Random(0))
    full = next(i for i, value in enumerate(values) if value >= LIMIT)
    alarm = first_alarm(values)
    assert alarm is not None and alarm < 0.8 * full
    assert first_alarm([min(value, values[50]) for value in values]) is None


def test_a_leak_too_small_to_matter_is_silent() -> None:
    """One MB a batch does not fill the device in this run."""
    assert first_alarm(leaking(constant, 1)(random.Random(0))) is None


def test_growth_once_an_epoch_is_a_ladder() -> None:
    """Rises of the same size at each epoch end are told when three of them point at the limit."""
    values = [8_000.0 + 3_300 * (i // EPOCH) for i in range(BATCHES)]
    assert first_alarm(values) is not None


def test_the_floor_is_found_with_its_rate() -> None:
    """A growth carries bytes per batch as they are."""
    ratchet = GrowthTest()
    for i in range(400):
        ratchet.push(1000.0 + 2 * i)
    growth = ratchet.growth()
    assert growth is not None and growth.rate == pytest.approx(2.0)
