"""What is said of a recorded history under other settings, and when nothing is."""

from __future__ import annotations

from pathlib import Path

import pytest

from memguard.allocator.analysis import analyse
from memguard.allocator.replay import replay, what_if
from memguard.allocator.snapshot import Snapshot
from memguard.allocator.snapshot_reader import read_snapshot
from memguard.cli import main
from memguard.report.snapshot_text import render_replay, render_what_if
from memguard.text.units import GIB, MIB
from tests.allocator.recorded import committed

REPORTED = Path(__file__).parents[3] / "shared" / "reports" / "snapshots"
EXPANDABLE = "expandable_segments:True"


def reported(name: str) -> Snapshot:
    path = REPORTED / f"{name}.pickle"
    if not path.exists():
        pytest.skip(f"{name} is not beside this checkout")
    return read_snapshot(path)


def test_advice_agrees_with_its_own_replay() -> None:
    """Expandable segments that cost more are not advised, and the figures are those of the replay."""
    snapshot = reported("octree-633k")
    (told,) = (each for each in analyse(snapshot, 0).advice if "gaps" in each)
    difference = what_if(snapshot, 0, conf=EXPANDABLE).reserved_peak_bytes - replay(snapshot, 0).reserved_peak_bytes
    assert difference == 156 * MIB
    assert "would not help" in told and "156 MiB more, with 0 instead of 1 allocation retries" in told


def test_a_retry_shows_how_large_the_card_is() -> None:
    """What was held and what was asked for were too much together; the bound is called one."""
    snapshot = reported("octree-633k")
    other = what_if(snapshot, 0, conf=EXPANDABLE)
    assert other.capacity_source == "retry"
    assert other.capacity_bytes is not None and 20.7 * GIB < other.capacity_bytes < 24 * GIB
    assert "at most 23.5 GiB for PyTorch (a retry shows it)" in render_what_if(replay(snapshot, 0), other, 0)


def test_the_retries_of_a_recorded_program_bound_its_card() -> None:
    """On the card that the bound names the recorded program needs as many retries as it did."""
    snapshot = committed("streams")
    other = what_if(snapshot, 0)
    assert other.num_alloc_retries == replay(snapshot, 0).num_alloc_retries > 0
    assert other.capacity_source in ("out of memory", "retry")


def test_a_handful_of_events_is_no_evidence() -> None:
    """Neither exact nor better: nothing is said."""
    snapshot = reported("sketchkv2")
    recorded, other = replay(snapshot, 0), what_if(snapshot, 0, conf=EXPANDABLE)
    assert "1 event, too few" in render_replay(recorded, 0)
    told = render_what_if(recorded, other, 0)
    assert "no evidence" in told and "less" not in told


def test_the_device_that_ran_out_comes_first(capsys: pytest.CaptureFixture[str]) -> None:
    """Of three devices the one that failed is explained first, and every block names its device."""
    reported("codelocation")
    assert main(["snapshot", str(REPORTED / "codelocation.pickle"), "--alloc-conf", EXPANDABLE]) == 0
    blocks = capsys.readouterr().out.split("\n\n")[1:]
    assert [block.split(",")[0].splitlines()[0] for block in blocks[:3]] == ["Device 1", "Device 0", "Device 2"]
    assert all(f"evice {number}" in block.splitlines()[0] for block, number in zip(blocks, (1, 0, 2) * 3, strict=True))


def test_steps_called_from_two_places() -> None:
    """Warm-up and measured calls stand on different lines; their steps are the same."""
    told = analyse(reported("octree-633k"), 0).trace
    assert told is not None and told.steps is not None
    assert told.steps.count == 59 and told.steps.events_per_step == 34
    assert told.steps.growth == ()


def test_what_repeats_in_one_optimizer_step_is_no_training_step() -> None:
    """The history holds one forward, backward and step; its 111 parameters repeat."""
    told = analyse(reported("bcrafton"), 0).trace
    assert told is not None and told.steps is None and told.repetition is not None
    assert told.repetition.count == 111
    assert "benchmarking_script.py:54 in fake_train" in told.repetition.within
