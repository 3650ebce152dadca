"""A slow or busy machine names what a fast one names: bounds in objects end the work, not the clock."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest
import torch

from memguard.autograd.graph import SHOWS_SAVED
from memguard.evidence.naming.holders import HolderSearch
from memguard.evidence.oom.census import Census
from tests.evidence.scripts import marked_lines, run

SCRIPT = """
crowd = [[[i] for i in range(60)] for _ in range(60)]
class Trainer:
    def __init__(self, model):
        self.model, self.log = model, []
    def fit(self):
        for x, y in batches():
            self.log.append({"loss": F.mse_loss(self.model(x), y)})  # <-
Trainer(nn.Linear(8, 1)).fit()
"""


@pytest.fixture(autouse=True)
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock on which thirty-two objects, a tensor or a file take a millisecond: ten times what they do here."""
    looks = iter(range(1 << 30))
    monkeypatch.setattr("memguard.heap.walk.thread_time", lambda: next(looks) * 0.001)


def reached(monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    """Objects that a walk met among thousands, and tensors that were judged."""
    crowd = [[[torch.zeros(()), [i]] for i in range(20)] for _ in range(20)]
    monkeypatch.setattr("memguard.heap.walk.MAX_OBJECTS", 8_000)
    survey = HolderSearch(extra=[("crowd", crowd)])
    return len(list(survey.snapshot.links)), len(survey.judged(lambda tensor: 1))


def test_a_walk_goes_as_far_as_on_a_fast_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """To the bound in objects; what it met is judged, however much that is."""
    gc.collect()
    slow = reached(monkeypatch)
    monkeypatch.setattr("memguard.heap.walk.thread_time", lambda: 0.0)
    fast = reached(monkeypatch)
    # This frame has a few more locals by now, which leave room for as many fewer others under the bound.
    assert slow[0] == pytest.approx(fast[0], rel=0.01)
    assert slow[1] == pytest.approx(fast[1], rel=0.02)
    assert slow[0] > 500


def test_a_holder_is_named(tmp_path: Path) -> None:
    """Among thousands of other objects."""
    holders = run(SCRIPT, tmp_path)
    assert holders and holders[0].place.holder == "Trainer.log"
    assert holders[0].place.line in marked_lines(tmp_path / "script.py")


def test_an_error_is_explained_by_as_many_nodes_as_on_a_fast_one() -> None:
    """A huge graph is looked at in part: as far as the count goes."""
    value = torch.ones(1, requires_grad=True)
    for _ in range(400):
        value = value.tanh()
    census = Census(lambda tensor: True, lambda address, nbytes: nbytes, nodes_left=300)
    assert len(list(census.walk([value.grad_fn]))) == (300 if SHOWS_SAVED else 0)
    assert census.nodes_left == 0
    assert list(census.walk([value.grad_fn])) == []
