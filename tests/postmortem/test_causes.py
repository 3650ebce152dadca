"""Eight scripted out-of-memory errors: the cause is named, and the first advice makes the run fit."""

from __future__ import annotations

import json
import linecache
import pickle
from pathlib import Path

import pytest
import torch
from torch import nn

import memguard
from memguard.allocator.snapshot_reader import read_snapshot
from memguard.postmortem.replay import replay_with
from tests.postmortem import scenarios

WORDS = {
    "size": "Make the batch",
    "leak": "losses",
    "fragmentation": "expandable_segments:True",
    "long-batch": "Limit the input to",
    "validation-graph": "no_grad",
    "optimizer-state": "Adafactor",
    "several-models": "`folds`",
    "kept-exception": "except block",
}
"""What the text must say, by cause."""


@pytest.mark.parametrize("name", scenarios.CAUSES)
def test_eight_causes(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The report names the cause, the owners add up, and the first advice, applied, makes the run fit."""
    told = scenarios.fail(name, str(tmp_path), history="always" if name == "fragmentation" else "auto")
    assert told["cause_kind"] == name
    allocated = told["request"]["allocated_bytes"]
    assert abs(sum(told["owners"].values()) - allocated) <= 0.01 * allocated
    assert told["owners"]["other"] <= 0.05 * allocated
    assert told["lines_allocated"] is (name in ("fragmentation", "leak"))  # the others have no history
    assert told["seconds"] > 0
    assert not told["caught"]
    assert WORDS[name] in told["text"]
    folder = tmp_path / "memguard" / told["id"]
    assert (folder / "report.md").read_text() == told["text"]
    assert json.loads((folder / "report.json").read_text())["cause_kind"] == name
    assert read_snapshot(folder / "snapshot.pickle").segments_of(0)
    if name == "fragmentation":
        assert [each["fits"] for each in told["replay"]] == [True]
        monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    scenarios.pass_with(name, scenarios.fix_of(name, told), str(tmp_path / "fixed"))


@pytest.mark.parametrize(("share", "fits"), [(1.0, False), (1.5, True)])
def test_a_replay_that_takes_all_there_is_does_not_fit(share: float, fits: bool, tmp_path: Path) -> None:
    """The trace ends at the failed request; its batch had more to ask for."""
    scenarios.fail("fragmentation", str(tmp_path), history="always")
    [path] = tmp_path.glob("memguard/*/snapshot.pickle")
    snapshot = pickle.loads(path.read_bytes())
    peak = replay_with(snapshot, 0)[0].reserved_peak_bytes
    assert [each.fits for each in replay_with(snapshot, 0, room_bytes=round(share * peak))] == [fits]


def test_no_expandable_segments_without_a_replay(tmp_path: Path) -> None:
    """Without a history, the advice is to record one, not to set what nobody tried; never to empty the cache."""
    told = scenarios.fail("fragmentation", str(tmp_path))
    advice = " ".join(each["text"] for each in told["advice"])
    assert told["cause_kind"] == "fragmentation"
    assert "expandable_segments" not in advice
    assert 'history="always"' in advice
    assert "empty" not in advice


def test_the_batch_that_is_proposed_is_no_wild_guess(tmp_path: Path) -> None:
    """The proposed batch fits, and half as much again does not."""
    told = scenarios.fail("size", str(tmp_path))
    proposed = told["advice"][0]["value"]
    scenarios.pass_with("size", proposed, str(tmp_path / "fits"))
    with pytest.raises(scenarios.torch.OutOfMemoryError):
        scenarios.pass_with("size", 3 * proposed // 2, str(tmp_path / "fails"))


def test_features_of_a_data_set_are_a_pile_though_the_free_pieces_would_have_been_enough(tmp_path: Path) -> None:
    """Only a part of the model is asked, so no batch ends meanwhile; the list is named at the line that fills it."""
    model = nn.Sequential(nn.Linear(64, 2048), nn.ReLU(), nn.Linear(2048, 8))
    features = []
    guard = memguard.watch(model, device="virtual:256MiB", logdir=str(tmp_path), quiet=True)
    with pytest.raises(torch.OutOfMemoryError), guard, torch.no_grad():
        for _ in range(60):
            found = model[0](torch.zeros(1024, 64))
            features.append(found)
    told = guard.result().oom
    assert told is not None
    assert told["cause_kind"] == "leak"
    assert "`features` holds" in told["cause"]
    assert "features.append" in linecache.getline(__file__, told["place"]["line"])
    assert [finding.code for finding in guard.findings] == ["MG501"]
