"""Readings of the host's memory that grow towards its end; the curve of peaks over sizes of input."""

from __future__ import annotations

import random

import pytest

from memguard.records.stats import SlowStats
from memguard.rules.capacity import fit
from memguard.rules.host_growth import SampledGrowth
from memguard.text.units import GIB, MIB
from tests.rules.evidence import record


@pytest.mark.parametrize("seconds", [1.0, 4.0])
def test_growth_is_told_by_the_second_however_far_apart_readings_are(seconds: float) -> None:
    """The slow lane reads once a second at first, later every few seconds."""
    sampled, told = SampledGrowth(), []
    for reading in range(200):
        grown = reading * 30 * MIB
        rate = sampled.grows(
            SlowStats(host_available_bytes=6 * GIB - grown), GIB + grown, record(reading, time=reading * seconds)
        )
        told += [rate] if rate is not None else []
    assert told == [pytest.approx(30 * MIB / seconds)]


def test_points_on_a_line_are_a_line() -> None:
    """With some noise: a bent curve would explain it no better."""
    draw = random.Random(1)
    sizes = [draw.randrange(100, 900) for _ in range(40)]
    curve = fit([(size, 5_000 + 30 * size + draw.randrange(-400, 400)) for size in sizes])
    assert curve is not None and not curve.bend
    assert curve.at(2000) == pytest.approx(65_000, rel=0.05)
    assert curve.reach(curve.at(2000)) == pytest.approx(2000)


@pytest.mark.parametrize("linear", [0, 400])
def test_what_attention_needs_is_followed_with_its_bend(linear: int) -> None:
    """A line through the same points would tell a third too little at twice the size."""
    curve = fit([(size, 10_000 + linear * size + size * size) for size in range(100, 900, 20)])
    assert curve is not None and curve.bend == pytest.approx(1.0, rel=0.01)
    assert curve.at(1800) == pytest.approx(10_000 + linear * 1800 + 1800**2, rel=0.01)
    assert curve.reach(curve.at(1800)) == pytest.approx(1800)


@pytest.mark.parametrize(
    "points", [[(8, 100)] * 12, [(8, 100), (9, 120)], [(size, 9_000 - size) for size in range(100, 800, 50)]]
)
def test_one_size_and_peaks_that_fall_make_none(points: list[tuple[int, int]]) -> None:
    """Nothing is to be concluded; nor of two points."""
    assert fit(points) is None


def test_peaks_that_have_nothing_to_do_with_the_size_make_none() -> None:
    """Scattered over the whole height."""
    draw = random.Random(2)
    assert fit([(size, draw.randrange(0, 100_000)) for size in range(100, 900, 10)]) is None
