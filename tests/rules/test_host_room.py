"""Readings of the host's memory that grow towards its end."""

from __future__ import annotations

import pytest

from memguard.records.stats import SlowStats
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
