from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from memguard.integrations import devices
from memguard.integrations.devices import LOOKS, FurtherDevices, indices_of
from memguard.options import Options
from memguard.recorder import Recorder
from memguard.recording.format import place_of
from memguard.recording.reader import Recording, find_recordings
from memguard.records.stats import Run, Stage
from tests.fakes import ScriptedBackend


class Spread:
    """A model's face: parameters on some devices."""

    def __init__(self, *places: str) -> None:
        self._modules: dict[str, Any] = {}
        self._buffers: dict[str, Any] = {}
        self._parameters = {str(n): SimpleNamespace(device=torch.device(place)) for n, place in enumerate(places)}


class OnCuda(ScriptedBackend):
    """A scripted backend that says it is the first CUDA device."""

    device = "cuda:0"


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """What further devices need of a session, with scripted devices."""
    monkeypatch.setattr(devices, "choose_backend", lambda device, peaks: ScriptedBackend())
    recorder = Recorder(OnCuda(), Run(device="cuda:0"), logdir=tmp_path)
    recorder.open({})
    made = SimpleNamespace(
        backend=OnCuda(),
        recorder=recorder,
        options=Options(),
        logdir=tmp_path,
        watch=SimpleNamespace(models=[]),
    )
    yield made
    recorder.close()


def test_devices_are_those_of_parameters_and_buffers() -> None:
    """Of the guarded kind only; a model on one device has one."""
    model = Spread("cuda:0", "cuda:2", "cpu", "cuda:2")
    assert indices_of(cast(Any, [model]), "cuda") == {0, 2}
    assert indices_of(cast(Any, [Spread("cpu")]), "cuda") == set()


def test_each_further_device_has_a_recording_with_the_same_batches(session: Any, tmp_path: Path) -> None:
    """The guarded device is recorded by the session alone; the others hear stages and batches as it does."""
    further = FurtherDevices(session)
    further.open({"options": {}})
    further.stage_start(Stage.TRAIN, 0)
    further.find(cast(Any, [Spread("cuda:0", "cuda:1", "cuda:3")]))
    for index in range(3):
        further.batch_start(index)
        further.optimizer_step()
        further.batch_end()
    further.stage_end(Stage.TRAIN)
    further.close("finished")
    recordings = {place_of(path.name): Recording.open(path) for path in find_recordings(tmp_path)}
    assert sorted(place for place in recordings if place) == [(0, 0), (0, 1), (0, 2)]
    for lane in (1, 2):
        recording = recordings[0, lane]
        assert [(each.stage, each.optimizer_steps) for each in recording.records()] == [
            (Stage.TRAIN, 1),
            (Stage.TRAIN, 2),
            (Stage.TRAIN, 3),
        ]
        assert recording.end is not None and recording.end["reason"] == "finished"
    assert len(session.recorder.summary.devices) == 2 and len(further) == 0


def test_a_part_that_moves_later_is_found_later(session: Any) -> None:
    """The models are looked at again in an early batch, and then never more."""
    further = FurtherDevices(session)
    further.open({"options": {}})
    for batch in range(1, LOOKS[-1] + 3):
        if batch == LOOKS[0] + 1:
            session.watch.models = [Spread("cuda:0", "cuda:1")]
        further.batch_start(None)
        assert len(further) == int(batch >= LOOKS[-1])
        further.batch_end()
    further.close("finished")


def test_a_rule_names_the_device_in_what_it_finds(session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the rules find on a further device stands in the session's own findings, under that device's name."""
    from memguard.rules.interface import Rule
    from tests.fakes import claim

    class Always(Rule):
        code, name = "MG401", "fragmentation"

        def observe(self, record: Any, run: Run) -> Any:
            return [claim(code="MG401", message="reserved far above active.", holder=None)]

    monkeypatch.setattr(devices, "make_rules", lambda **given: [Always()])
    further = FurtherDevices(session)
    further.open({"options": {}})
    further.find(cast(Any, [Spread("cuda:1")]))
    further.batch_start(0)
    further.batch_end()
    further.close("finished")
    (told,) = session.recorder.findings.values()
    assert (told.message, told.holder) == ("on cuda:1: reserved far above active.", "cuda:1")
