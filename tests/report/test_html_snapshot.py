from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from memguard.allocator.analysis import analyse
from memguard.allocator.analysis.trial import EXPANDABLE_CONF
from memguard.allocator.replay import replay
from memguard.errors import SnapshotError
from memguard.report.html_snapshot import snapshot_map
from tests.allocator.recorded import committed, committed_bytes
from tests.tensorboard_plugin.make_logdir import make_snapshot


def test_blocks_fill_their_segments_and_lines_hold_what_is_in_use(tmp_path: Path) -> None:
    """Every byte of the snapshot is on the map once."""
    make_snapshot(tmp_path)
    drawn = snapshot_map((tmp_path / "snapshot.pickle").read_bytes())
    totals = drawn["totals"]
    assert all(sum(segment["blocks"][0::4]) == segment["size"] for segment in drawn["segments"])
    assert totals["reserved_bytes"] == sum(segment["size"] for segment in drawn["segments"])
    assert totals["allocated_bytes"] + totals["waiting_bytes"] + totals["free_bytes"] == totals["reserved_bytes"]
    assert sum(line[3] for line in drawn["lines"]) == totals["allocated_bytes"]
    assert ["/home/user/project/train.py", 41, "train"] in [line[:3] for line in drawn["lines"]]


def test_what_is_no_snapshot_is_refused() -> None:
    """Other pickles and junk raise with words."""
    for data in (pickle.dumps({"a": 1}), pickle.dumps([1, 2]), b"", b"junk"):
        with pytest.raises(SnapshotError):
            snapshot_map(data)


def test_too_many_blocks_are_left_to_the_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A map that no browser could draw is refused, naming the command that reads it."""
    monkeypatch.setattr("memguard.report.html_snapshot._MOST_BLOCKS", 10)
    make_snapshot(tmp_path)
    with pytest.raises(SnapshotError, match="memguard snapshot FILE"):
        snapshot_map((tmp_path / "snapshot.pickle").read_bytes())


def test_a_moments_map_has_what_the_history_says_of_it(tmp_path: Path) -> None:
    """At each of some moments the blocks in use are what was allocated then, by line, by kind and on the map."""
    make_snapshot(tmp_path)
    data = (tmp_path / "snapshot.pickle").read_bytes()
    history = snapshot_map(data)["history"]
    assert max(history["totals"]) == history["totals"][history["events"].index(history["peak_event"])]
    for at in (5, 100, len(history["events"]) - 1):
        shares = [sum(each["bytes"][at] for each in history[key]) for key in ("lines", "kinds")]
        then = snapshot_map(data, history["events"][at])
        assert shares == [history["totals"][at]] * 2
        assert then["totals"]["allocated_bytes"] == history["totals"][at]
        assert "history" not in then


def test_steps_and_replays_are_those_of_the_command_line() -> None:
    """What grows with each step, and the reserved peak as recorded and with expandable segments; not of a moment."""
    data = committed_bytes("leak")
    (told,) = (analyse(committed("leak"), device) for device in committed("leak").devices)
    assert told.trace is not None and (steps := told.trace.steps) is not None and steps.growth
    drawn = snapshot_map(data)
    assert drawn["steps"]["count"] == steps.count
    assert drawn["steps"]["growth"][0] == [
        *(steps.growth[0].file, steps.growth[0].line, steps.growth[0].function),
        *(steps.growth[0].bytes_per_step, steps.growth[0].bytes),
    ]
    recorded = replay(committed("max-split"), 0).reserved_peak_bytes
    replays = snapshot_map(committed_bytes("max-split"))["replays"]
    assert replays[0] == ["as recorded", recorded] and [conf for conf, _ in replays[1:]] == [EXPANDABLE_CONF]
    assert not {"steps", "replays", "advice"} & set(snapshot_map(data, 5))


def test_unused_segments_are_no_fragmentation() -> None:
    """A segment without a block in use is idle cache, counted apart."""
    free = {"address": 2**32, "size": 2**21, "requested_size": 0, "state": "inactive", "frames": []}
    segment = {
        "device": 0,
        "address": 2**32,
        "total_size": 2**21,
        "stream": 0,
        "segment_type": "large",
        "blocks": [free],
    }
    totals = snapshot_map(pickle.dumps({"segments": [segment], "device_traces": []}))["totals"]
    assert totals["idle_bytes"] == totals["free_bytes"] == 2**21
