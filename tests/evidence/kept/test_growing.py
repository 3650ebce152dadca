"""What grows with every batch is told for what it is: outputs, views of them, or the model itself."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from memguard.evidence.kept.outputs import OutputsProbe
from memguard.evidence.kept.scans import ScansProbe
from memguard.evidence.kept.views import is_told
from memguard.evidence.owners import state_of
from memguard.records.facts import GrowingParameters, KeptOutputs, ViewsPinStorage
from memguard.records.stats import Stage
from tests.evidence.loop import Loop

ROWS, WIDTH = 64, 512


class Cache:
    """Keeps something of a tensor that no model gives back."""

    def __init__(self) -> None:
        self.entries: dict[int, torch.Tensor] = {}

    def add(self, rows: int) -> None:
        hidden = torch.zeros(ROWS, WIDTH)
        for row in range(rows):
            self.entries[len(self.entries)] = hidden[row]


def grown(rows: int) -> Loop:
    cache, model = Cache(), nn.Linear(2, 2)
    with Loop(model, kinds=[ScansProbe]) as loop:
        for _ in loop.batches(40):
            cache.add(rows)
    return loop


def test_views_that_pile_up_are_told_as_views() -> None:
    """Two rows of each tensor keep all of it."""
    loop = grown(rows=2)
    (fact,) = loop.of(ViewsPinStorage)
    assert (fact.place.holder, fact.grows, loop.of(KeptOutputs)) == ("Cache.entries", True, [])
    assert 8 * fact.used_bytes < fact.pinned_bytes


class Exact:
    """A metric whose forward copies all that it has, beside what it is given."""

    def __init__(self) -> None:
        self.rows: list[torch.Tensor] = []

    def take(self, rows: torch.Tensor) -> None:
        self.rows = [kept.clone() for kept in self.rows] + [rows]


@pytest.mark.parametrize(
    ("limit", "told"),
    [(1000, ["Exact.rows"]), (40, [])],
)
def test_a_list_that_is_copied_and_grows_by_the_same_with_each_batch_is_told(limit: int, told: list[str]) -> None:
    """Nothing in it is as old as a batch; where its length is another each time, it is another list."""
    exact, model = Exact(), nn.Linear(2, 2)
    with Loop(model, kinds=[ScansProbe]) as loop:
        for batch in loop.batches(70):
            exact.take(torch.zeros(ROWS, WIDTH))
            if batch % limit == limit - 1:
                exact.rows = exact.rows[: batch % 7]
    assert [fact.place.holder for fact in loop.of(KeptOutputs)] == told


class Hardest:
    """Keeps some rows of each tensor, with a number each."""

    def __init__(self) -> None:
        self.heap: list[tuple[int, torch.Tensor]] = []

    def offer(self) -> None:
        rows = torch.zeros(ROWS, WIDTH)
        for row in range(4):
            if len(self.heap) < 200:
                self.heap.append((row, rows[row]))


def test_rows_in_a_long_bounded_list_are_told_as_views() -> None:
    """Four of each tensor, in a list of which a walk meets too few to tell."""
    pool, model = Hardest(), nn.Linear(2, 2)
    with Loop(model, kinds=[ScansProbe]) as loop:
        for _ in loop.batches(30):
            pool.offer()
    (fact,) = loop.of(ViewsPinStorage)
    assert (fact.place.holder, fact.grows, loop.of(KeptOutputs)) == ("Hardest.heap", False, [])
    assert fact.pinned_bytes == fact.views // 4 * ROWS * WIDTH * 4


def test_all_rows_of_what_is_kept_are_told_as_outputs() -> None:
    """Together they show all of it, of which a long container's samples are a part."""
    loop = grown(rows=ROWS)
    assert [fact.place.holder for fact in loop.of(KeptOutputs)] == ["Cache.entries"]
    assert loop.of(ViewsPinStorage) == []


class Splats:
    """A model that a program makes larger, and trains."""

    def __init__(self) -> None:
        self.parts: list[nn.Parameter] = []
        self.optimizer: torch.optim.Optimizer | None = None

    def densify(self, *, trains: bool) -> None:
        part = nn.Parameter(torch.zeros(1024))
        self.parts.append(part)
        if self.optimizer is None:
            self.optimizer = torch.optim.Adam([part])
        elif trains:
            self.optimizer.add_param_group({"params": [part]})


@pytest.mark.parametrize("outputs", [False, True])
def test_models_that_are_kept_are_told_as_weights(outputs: bool) -> None:
    """A recurrent one has its parameters in a list as well; beside outputs they are no matter of weights alone."""
    kept: list[object] = []
    model = nn.Linear(2, 2)
    with Loop(model, kinds=[ScansProbe]) as loop:
        for _ in loop.batches(40):
            made = nn.GRU(64, 64)
            kept.append((made, torch.zeros(ROWS, WIDTH)) if outputs else made)
    (fact,) = loop.of(KeptOutputs)
    assert (fact.place.holder, fact.weights) == ("kept", not outputs)


def densified(*, trains: bool) -> Loop:
    splats, model = Splats(), nn.Linear(2, 2)
    splats.densify(trains=trains)
    with Loop(model, kinds=[ScansProbe]) as loop:
        for _ in loop.batches(40):
            assert splats.optimizer is not None
            torch.stack(splats.parts[-4:]).sum().backward()
            splats.optimizer.step()
            splats.densify(trains=trains)
    return loop


def test_parameters_that_an_optimizer_gets_more_of_are_no_kept_outputs() -> None:
    """Nor is its state; parameters that nothing trains pile up. Who gets them is told, for growth that will not fit."""
    trained = densified(trains=True)
    assert trained.of(KeptOutputs) == []
    more = trained.of(GrowingParameters)
    assert {fact.place.holder for fact in more} & {"Splats.parts", "Splats.optimizer"}
    assert all(fact.parameters > fact.batches // 2 for fact in more)
    assert [fact.place.holder for fact in densified(trains=False).of(KeptOutputs)] == ["Splats.parts"]


class Metric:
    """Keeps two states of every batch, and a third elsewhere."""

    def __init__(self) -> None:
        self.preds: list[torch.Tensor] = []
        self.target: list[torch.Tensor] = []
        self.weights: list[torch.Tensor] = []

    def update(self, preds: torch.Tensor, target: torch.Tensor) -> None:
        self.preds.append(preds.clone())
        self.target.append(target.clone())

    def weigh(self, weights: torch.Tensor) -> None:
        self.weights.append(weights.clone())


def test_states_that_are_filled_side_by_side_are_told_as_one() -> None:
    """By the one that stands first, with the bytes of both; what another method fills is another cause."""
    metric, model = Metric(), nn.Linear(2, 2)
    with Loop(model, kinds=[ScansProbe]) as loop:
        for _ in loop.batches(40):
            metric.update(torch.zeros(64, 128), torch.zeros(64, 512))
            metric.weigh(torch.zeros(64, 64))
    first, second = loop.of(KeptOutputs)
    assert (first.place.holder, first.beside) == ("Metric.preds", ("Metric.target",))
    assert first.bytes_per_batch == 64 * (512 + 128) * 4
    assert (second.place.holder, second.beside) == ("Metric.weights", ())


class Inputs:
    """Keeps what each layer was given, under the layer's name."""

    def __init__(self) -> None:
        self.pending: dict[str, list[torch.Tensor]] = {"first": [], "second": [], "third": []}

    def add(self, name: str, given: torch.Tensor) -> None:
        self.pending[name].append(given.clone())

    def take(self, name: str) -> torch.Tensor:
        return self.pending[name].pop()


def test_lists_in_one_dict_are_one_cause_that_grows_by_all_of_them() -> None:
    """In evaluation from its first batch on, though that one was not sampled."""
    inputs, model = Inputs(), nn.Linear(2, 2)
    with Loop(model, kinds=[ScansProbe]) as loop:
        for number in loop.batches(40, Stage.VALIDATION):
            loop.watch.number = number
            for name in inputs.pending:
                inputs.add(name, torch.zeros(64, 128))
    (fact,) = loop.of(KeptOutputs)
    assert (fact.place.holder, fact.first_batch, fact.tensors) == ("Inputs.pending", 0, 3 * (fact.batch + 1))
    assert fact.bytes_per_batch == 3 * 64 * 128 * 4


@pytest.mark.parametrize("before", [0, 100])
def test_what_grows_is_counted_from_its_beginning(before: int) -> None:
    """Not from the first look on; but what lay in it before is left out where the batches cannot have brought it."""
    model = nn.Linear(2, 2)
    kept = [torch.zeros(512) for _ in range(before)]
    with Loop(model, kinds=[ScansProbe]) as loop:
        for _ in loop.batches(40):
            kept.append(torch.zeros(512))  # noqa: PERF401 # as users write it
    (fact,) = loop.of(KeptOutputs)
    assert fact.bytes == fact.tensors * 512 * 4 and fact.bytes_per_batch == 512 * 4
    assert (fact.tensors == fact.batch + 1 and fact.first_batch == 0) is (before == 0)
    assert fact.tensors <= fact.batch + 1


def test_elements_of_several_tensors_are_not_counted_as_tensors() -> None:
    """A replay of pairs: half of its tensors would be told."""
    replay: list[tuple[torch.Tensor, torch.Tensor]] = []
    with Loop(nn.Linear(2, 2), kinds=[ScansProbe]) as loop:
        for _ in loop.batches(40):
            replay.append((torch.zeros(64, 64), torch.zeros(64, 64)))  # noqa: PERF401 # as users write it
    (fact,) = loop.of(KeptOutputs)
    assert fact.place.holder == "replay"
    assert fact.what == "{count} elements of several tensors"


@torch.no_grad()
def collected(loop: Loop, model: nn.Module, count: int) -> list[torch.Tensor]:
    """A row of each answer."""
    rows = []
    for _ in loop.batches(count, Stage.VALIDATION):
        rows.append(model(torch.zeros(ROWS, 2))[0])  # noqa: PERF401 # as users write it
    return rows


def test_views_that_a_function_returns_are_told_once() -> None:
    """Where they are collected, though the list is more than twice as long when its caller trains with it."""
    model = nn.Linear(2, WIDTH)
    with Loop(model.eval(), kinds=[OutputsProbe, ScansProbe]) as loop:
        rows = collected(loop, model, 120)
        for _ in loop.batches(80):
            pass
    assert len(rows) == 120
    assert {(fact.place.holder, fact.place.function) for fact in loop.of(ViewsPinStorage)} == {("rows", "collected")}


def test_a_few_addresses_that_came_again_say_nothing_of_views() -> None:
    """Of what was told some storages are gone, and others lie there now."""
    assert is_told(frozenset(range(8)), frozenset(range(80)))
    assert is_told(frozenset(range(80)), frozenset(range(8)))
    assert not is_told(frozenset({7}), frozenset(range(80)))
    assert not is_told(frozenset(range(76, 90)), frozenset(range(80)))


def test_the_history_of_an_optimizer_is_its_own() -> None:
    """LBFGS keeps the directions of a hundred steps, however many tensors that are."""
    model, x = nn.Linear(16, 64), torch.randn(8, 16)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=5, tolerance_grad=0, tolerance_change=0, lr=1e-3)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        return loss

    with Loop(model, kinds=[ScansProbe]) as loop:
        for _ in loop.batches(30):
            optimizer.step(closure)
    state = optimizer.state[model.weight]
    assert len(state["old_dirs"]) == 100
    assert sum(1 for _ in state_of(optimizer)) > 200
    assert loop.facts == []
