"""Single tensors that grow, told with the statement that makes them."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

from memguard.evidence.kept.scans import ScansProbe
from memguard.records.facts import KeptOutputs, RetainedGraphs
from memguard.records.stats import Stage
from memguard.source.stores import keeps_a_slice
from tests.evidence.loop import Loop, statement_of, train_on


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A walk may take what it needs: in a process with hundreds of test modules it does not fit its slices."""
    for name in ("SLICE_STEPS", "LAST_SLICE_STEPS"):
        monkeypatch.setattr(f"memguard.evidence.kept.scans.{name}", 1 << 30)


def test_batches_of_other_stages_do_not_hide_an_average_with_a_graph() -> None:
    """Samples are drawn between the epochs, in more batches than these have; a dictionary stays as long as it is."""
    model = nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    shadow = {name: parameter.clone() for name, parameter in model.named_parameters()}
    with Loop(model, kinds=[ScansProbe]) as loop:
        for _ in range(3):
            for _ in loop.batches(12):
                train_on(optimizer, model(torch.randn(4, 8)).sum())
                for name, parameter in model.named_parameters():
                    shadow[name] = 0.9 * shadow[name] + 0.1 * parameter  # averaged
            with torch.no_grad():
                for _ in loop.batches(40, Stage.VALIDATION):
                    model(torch.randn(4, 8))
    (fact,) = loop.of(RetainedGraphs)
    assert fact.place.holder == "shadow" and "# averaged" in statement_of(fact)
    assert 8 <= fact.graphs <= 36 and fact.last_batch - fact.first_batch > 40
    assert fact.deepened and fact.bytes is None


def steady() -> Callable[[int], None]:
    kept = {"bank": torch.zeros(0, 512)}

    def step(index: int) -> None:
        kept["bank"] = torch.cat([kept["bank"], torch.zeros(32, 512)])[-128:]

    return step


def of_different_lengths() -> Callable[[int], None]:
    kept: dict[str, torch.Tensor] = {}

    def step(index: int) -> None:
        kept["newest"] = torch.zeros(32 * (index + 1), 512)

    return step


@pytest.mark.parametrize("make", [steady, of_different_lengths])
def test_what_has_a_limit_or_is_only_replaced_is_silent(make: Callable[[], Callable[[int], None]]) -> None:
    """A window over what came last; batches that happen to be longer and longer."""
    model, step = nn.Linear(16, 4), make()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with Loop(model, kinds=[ScansProbe]) as loop:
        for index in loop.batches(40):
            model(torch.randn(4, 16)).sum().backward()
            optimizer.step()
            step(index)
    assert loop.facts == []


def test_a_trajectory_for_every_few_batches_is_told_by_its_bytes() -> None:
    """A list that grows seldom, by much; one of scalars that grows as seldom is a log."""
    model = nn.Linear(64, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    trajectories, log = list[torch.Tensor](), list[torch.Tensor]()
    with Loop(model, kinds=[ScansProbe]) as loop:
        for index in loop.batches(64):
            if index % 3 == 0:
                trajectories.append(torch.zeros(32, 64))  # added
                log.append(torch.zeros(()))
            train_on(optimizer, model(trajectories[-1]).sum())
    (fact,) = loop.of(KeptOutputs)
    assert fact.place.holder == "trajectories" and "# added" in statement_of(fact)


@pytest.mark.parametrize(
    ("statement", "cut"),
    [
        ("bank = torch.cat([bank, z])", False),
        ("bank = torch.cat([bank, z])[-256:]", True),
        ("self.bank = torch.cat([self.bank, z])[-256:].detach()", True),
        ("preds = x if preds is None else torch.cat((preds, x))", False),
        ("for x in", True),
    ],
)
def test_a_statement_that_cuts(statement: str, cut: bool) -> None:
    """Only what keeps a slice of the whole limits it."""
    assert keeps_a_slice(statement) is cut


class Grids:
    """A grid for each image size, made once."""

    def __init__(self) -> None:
        self.cache: dict[int, torch.Tensor] = {}

    def of(self, size: int) -> torch.Tensor:
        if size not in self.cache:
            self.cache[size] = torch.zeros(size, size)
        return self.cache[size]


def test_a_larger_element_of_a_cache_is_no_tensor_that_grows() -> None:
    """What a variable holds is larger than what it held at the last look, for the images are."""
    model, grids = nn.Linear(8, 8), Grids()
    with Loop(model, kinds=[ScansProbe]) as loop:
        for number in loop.batches(80):
            model(torch.randn(4, 8)).sum().backward()
            grid = grids.of(128 * (1 + number // 10))
    assert grid.numel() and loop.of(KeptOutputs) == []
