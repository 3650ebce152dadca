from __future__ import annotations

from collections import deque
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from memguard.evidence.kept.outputs import OutputsProbe
from memguard.evidence.kept.scans import ScansProbe
from memguard.records.facts import KeptOutputs, PreviousOutputsAlive
from memguard.records.stats import MemoryStats, Stage
from memguard.source.bounds import bounds_of
from tests.evidence.loop import Loop, line_of, record_of

HISTORY: list[torch.Tensor] = []


def make() -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    return nn.Linear(16, 64), torch.randn(8, 16)


def looped(model: nn.Module, total: int, peak: int, **record: Any) -> Loop:
    """On a device of so many bytes, where forwards and batches peak at others."""
    stats = MemoryStats(allocated_bytes=peak, allocated_peak_bytes=peak)
    loop = Loop(model, kinds=[OutputsProbe], device_total_bytes=total, read=lambda: stats)
    told = {"stage": Stage.TRAIN, "allocated_peak_bytes": peak, **record}
    loop.record = record_of(**told)
    return loop


def test_of_outputs_with_several_tensors_the_batches_are_counted() -> None:
    """A pair a batch is sixteen tensors of eight batches: the words are of batches."""
    model, x = make()
    pairs = []
    with Loop(model, kinds=[OutputsProbe]) as loop:
        for _ in loop.batches(14):
            y = model(x).detach()
            pairs.append((y, y))
    fact = loop.of(KeptOutputs)[0]
    assert fact.what == "tensors of {count} batches"


def test_what_lies_beside_an_output_in_the_same_list_is_counted() -> None:
    """Features that are no output of the model's are most of what is kept."""
    model, x = make()
    results = []
    with Loop(model.eval(), kinds=[OutputsProbe]) as loop, torch.no_grad():
        for _ in loop.batches(14, Stage.VALIDATION):
            results.append((model(x), torch.zeros(30, 64), {"mask": torch.zeros(10, 64)}))  # noqa: PERF401
    fact = loop.of(KeptOutputs)[0]
    assert fact.bytes_per_batch == (8 + 30 + 10) * 64 * 4
    assert fact.bytes >= 8 * fact.bytes_per_batch and len(results) == 14


def test_predictions_of_one_validation_are_bounded() -> None:
    """A local list that ends with its pass is told as bounded."""
    model, x = make()

    def validate() -> int:
        predictions = []
        with torch.no_grad():
            for _ in loop.batches(14, Stage.VALIDATION):
                predictions.append(model(x))  # noqa: PERF401 # validation
        return len(predictions)

    with Loop(model.eval(), kinds=[OutputsProbe]) as loop:
        validate()
    fact = loop.of(KeptOutputs)[0]
    assert (fact.place.holder, fact.place.line) == ("predictions", line_of("validation"))
    assert fact.bounded and fact.stage is Stage.VALIDATION


def test_derived_tensors_are_found_by_counting_twice() -> None:
    """What is computed from outputs and kept is no output: the holder's growth between two counts tells."""
    model, x = make()
    classes = []
    with Loop(model, kinds=[ScansProbe]) as loop:
        for _ in loop.batches(24):
            with torch.no_grad():
                classes.append(model(x).argmax(1))  # derived
    (fact,) = loop.of(KeptOutputs)
    assert (fact.place.holder, fact.place.line) == ("classes", line_of("derived"))
    assert fact.bytes_per_batch == 8 * 8


class Answers(nn.Module):
    """Answers with a dict: a small part, and one that is eight times as large."""

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"small": x * 2, "large": x.repeat(1, 8)}


def test_of_two_lists_the_one_that_holds_most_is_told_with_its_own_size() -> None:
    """Each takes a part of an answer, the small one first."""
    model, x = Answers(), torch.randn(8, 64)
    small, large = [], []
    with Loop(model, kinds=[OutputsProbe]) as loop:
        for _ in loop.batches(14):
            out = model(x)
            small.append(out["small"])
            large.append(out["large"])  # the large part
    fact = loop.of(KeptOutputs)[0]
    assert (fact.place.holder, fact.place.line) == ("large", line_of("the large part"))
    assert fact.bytes_per_batch == 8 * 8 * 64 * 4


def test_many_views_of_one_output_weigh_what_it_weighs() -> None:
    """A list of an output's rows is not larger than another that holds outputs of the same size and more."""
    model, x = Answers(), torch.randn(8, 64)
    rows, large = [], []
    with Loop(model, kinds=[OutputsProbe]) as loop:
        for _ in loop.batches(14):
            out = model(x)
            rows.extend(out["small"])
            large.append(out["large"])  # beside the rows
    fact = loop.of(KeptOutputs)[0]
    assert (fact.place.holder, fact.place.line) == ("large", line_of("beside the rows"))
    assert fact.bytes_per_batch == pytest.approx(8 * 8 * 64 * 4, rel=0.1)  # long lists are met in samples


def test_healthy_loops_are_silent() -> None:
    """The last few outputs, copies elsewhere and outputs that die are nothing."""
    model, x = make()
    recent: deque[torch.Tensor] = deque(maxlen=4)
    with Loop(model, kinds=[OutputsProbe, ScansProbe]) as loop:
        best = None
        for _ in loop.batches(60):
            out = model(x).detach()
            recent.append(out)
            best = out if best is None or bool(out.sum() > best.sum()) else best
    assert loop.facts == []


def test_the_previous_batch_is_told_with_the_phase_of_the_peak() -> None:
    """An output that is 3 % of the device and alive at the next forward is told; deleted, it is not."""
    model, x = make()
    with looped(model, 40_000, 90) as loop:
        for _ in loop.batches(4):
            out = model(x)
            del out
        assert loop.of(PreviousOutputsAlive) == []
        for index in loop.batches(4):
            assert loop.record is not None
            loop.record = replace(loop.record, allocated_peak_bytes=90 + index)
            out = model(x)
    facts = loop.of(PreviousOutputsAlive)
    assert [fact.place.holder for fact in facts] == ["out", "out"]
    assert facts[0].bytes == 8 * 64 * 4
    assert [fact.peak_in_forward for fact in facts] == [False, False]
    assert out.shape == (8, 64)


@pytest.mark.parametrize("sets", ["each turn", "one turn"])
def test_one_look_tells_where_the_source_sets_it_in_each_turn(sets: str) -> None:
    """What one branch keeps may be of the first batch alone: the next look will tell."""
    model, x = make()
    with looped(model, 40_000, 90) as loop:
        if sets == "each turn":
            for _ in loop.batches(2):
                out = model(x)
        else:
            for index in loop.batches(2):
                if index == 0:
                    first = model(x)
                else:
                    model(x)
    assert [fact.steady for fact in loop.of(PreviousOutputsAlive)] == [sets == "each turn"]
    assert (out if sets == "each turn" else first).shape == (8, 64)


def test_an_output_that_is_kept_after_many_quiet_batches_is_told_where_close_looks_are_asked_for() -> None:
    """As a peak that rises asks for three: of quiet batches one in four is followed, of these each."""
    model, x = make()
    with looped(model, 40_000, 90) as loop:
        for _ in loop.batches(32):
            model(x)
        loop.watch.look_closely(3)
        for _ in loop.batches(3):
            out = model(x).detach()
    assert [fact.place.holder for fact in loop.of(PreviousOutputsAlive)] == ["out", "out"]
    assert out.shape == (8, 64)


class WithWeights(torch.nn.Module):
    """Returns a small picture and the large weights of its parts."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(64, 64)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        weights = self.inner(x)
        return weights.mean(1, keepdim=True).repeat(1, 20), weights


def test_of_two_names_of_the_last_batch_the_one_that_holds_most_is_told() -> None:
    """Both are assigned by one statement, the smaller one first."""
    model, x = WithWeights(), torch.rand(64, 64)
    with looped(model, 100_000, 90, allocated_peak_bytes=100) as loop:
        for _ in loop.batches(4):
            image, weights = model(x)
            image.sum().backward()
        assert image.numel() < weights.numel()
    assert {fact.place.holder for fact in loop.of(PreviousOutputsAlive)} == {"weights"}


@pytest.mark.parametrize("peak_mib", [18, 4])
@pytest.mark.parametrize("wanted", ["given", "piled", "no"])
def test_a_state_that_the_forward_is_given_and_a_memory_are_wanted(wanted: str, peak_mib: int) -> None:
    """The one is read by the next forward, the other is kept for several batches, be it little of the peak or much."""
    model = nn.Linear(256, 256)
    state, memory = torch.rand(1024, 256), deque[torch.Tensor](maxlen=4)
    with looped(model, 1024**3, 1024**2, allocated_peak_bytes=peak_mib * 1024**2) as loop:
        for _ in loop.batches(6):
            out = model(state)
            out.sum().backward()
            if wanted == "given":
                state = out.detach()
            elif wanted == "piled":
                memory.append(out.detach())
            if wanted != "no":
                del out
    facts = loop.of(PreviousOutputsAlive)
    assert [fact.place.holder for fact in facts] == ["out"] * len(facts)
    assert bool(facts) is (wanted == "no")


class Trainer:
    """As one that remembers what its last step returned."""

    def __init__(self) -> None:
        self.last: dict[str, torch.Tensor] = {}
        self.bank = torch.zeros(8, 64)

    def remember(self, out: torch.Tensor) -> None:
        self.last = {"logits": out.detach(), "probs": out.detach().softmax(1), "bank": self.bank}  # remembered


@pytest.mark.parametrize("late", [False, True])
def test_what_lies_beside_an_output_of_the_last_batch_counts(late: bool) -> None:
    """Half of it would not matter; what is there for longer does not count. Whether a backward met it is told too."""
    model, x = make()
    trainer = Trainer()
    with looped(model, 100_000, 90, allocated_peak_bytes=100) as loop:
        for _ in loop.batches(4):
            out = model(x)
            if not late:
                trainer.remember(out)
            out.sum().backward()
            trainer.remember(out)
            del out
    facts = loop.of(PreviousOutputsAlive)
    assert [(fact.place.holder, fact.place.line) for fact in facts] == [("Trainer.last", line_of("remembered"))] * 2
    assert facts[1].bytes == 2 * 8 * 64 * 4
    assert [(fact.peak_in_forward, fact.until_backward) for fact in facts] == [(False, late)] * 2


SOURCE = """
LOG = []
class Trainer:
    def __init__(self):
        self.kept, self.cleared = [], []
        self.replaced = []
        self.ring = deque([], 1000)
    def step(self, out):
        self.ring.append(out)
        self.kept.append(out)
        self.cleared.append(out)
        self.replaced.append(out)
        LOG.append(out)
    def end(self):
        self.cleared.clear()
        self.replaced = []
def fit():
    outer = []
    for epoch in range(3):
        inner = []
        for batch in range(9):
            outer.append(batch)
            inner.append(batch)
class Cached:
    def __getitem__(self, index):
        if index not in self.samples:
            self.samples[index] = load(index)
            self.views[time()] = self.samples[index]
        return self.samples[index]
class Sage:
    def mean(self, key):
        if key in self.means:
            return self.means[key]
        self.means[key] = mean_of(key)
        self.last[key] = self.means[key]
        return self.means[key]
def one_pass(window):
    preds = []
    for batch in range(9):
        preds.append(batch)
        window.append(batch)
        if len(window) > 5:
            window = window[-5:]
"""


def test_bounds_are_read_from_the_source(tmp_path: object) -> None:
    """Clearing, rebuilding in an outer loop, a length test, one pass or a sample's index bound what grows."""
    path = str(tmp_path) + "/program.py"
    with open(path, "w") as file:
        file.write(SOURCE)
    lines = SOURCE.split("\n")

    def bounded(holder: str, statement: str) -> bool:
        return bool(bounds_of(path, next(i for i, text in enumerate(lines, 1) if statement in text), holder))

    assert not bounded("Trainer.kept", "self.kept.append")
    assert bounded("Trainer.cleared", "self.cleared.append")
    assert bounded("Trainer.replaced", "self.replaced.append")
    assert bounded("Trainer.ring", "self.ring.append")
    assert not bounded("LOG", "LOG.append")
    assert not bounded("outer", "outer.append")
    assert bounded("inner", "inner.append")
    assert bounded("preds", "preds.append")
    assert bounded("window", "window.append")
    assert bounded("Cached.samples", "self.samples[index] = load")
    assert not bounded("Cached.views", "self.views[time()]")
    assert bounded("Sage.means", "self.means[key] = ")
    assert not bounded("Sage.last", "self.last[key] = ")


PASS = """
def evaluate(data):
    {begins}
    for x in data:
        preds.append(x)
    return torch.cat(preds)
"""


@pytest.mark.parametrize(
    ("begins", "bounded"),
    [
        ("preds, labels = [], []", True),
        ("(first, *preds), n = [], 0", True),
        ("print(preds := [])", True),
        ("preds[0], labels = [], []", False),
        ("labels = []", False),
    ],
)
def test_a_list_that_begins_beside_others_is_bounded_like_one_that_begins_alone(
    begins: str, bounded: bool, tmp_path: Path
) -> None:
    """Several names in one assignment; what is only an element or another name says nothing."""
    path = tmp_path / "program.py"
    path.write_text(PASS.format(begins=begins))
    assert bool(bounds_of(str(path), 5, "preds")) is bounded


def test_a_scripts_one_pass_of_evaluation_and_a_comprehension_are_bounded(tmp_path: object) -> None:
    """At module level: inference at the end of a script. In training the same loop has no end that is known."""
    path = str(tmp_path) + "/script.py"
    with open(path, "w") as file:
        file.write("features = [model(x) for x in data]\npreds = []\nfor x in data:\n    preds.append(model(x))\n")
    assert bounds_of(path, 1, "features")
    assert bounds_of(path, 4, "preds", evaluates=True)
    assert not bounds_of(path, 4, "preds")
    with open(path, "a") as file:
        file.write("memory = []\nfor _ in range(9):\n    memory.append(act(model))\n    loss(memory).backward()\n")
    assert not bounds_of(path, 7, "memory", evaluates=True)  # an agent that acts and learns in one loop


def test_outputs_of_the_last_batch_are_told_in_evaluation_too() -> None:
    """Inference over large volumes: two of them stand side by side."""
    model, x = nn.Linear(64, 64).eval(), torch.randn(8, 64)
    with looped(model, 16384, 100, stage=Stage.VALIDATION, allocated_peak_bytes=50) as loop, torch.no_grad():
        for _ in loop.batches(4, Stage.VALIDATION):
            out = model(x)
    assert {fact.place.holder for fact in loop.of(PreviousOutputsAlive)} == {"out"}
    assert out.shape == (8, 64)
