"""Names that keep what the floor of memory rises by: models in caches, few large tensors, causes that begin later."""

from __future__ import annotations

import copy
import enum
import functools
import itertools
import linecache
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import nn

import memguard
from memguard.evidence.kept.growing_names import GrowingNamesProbe
from memguard.evidence.kept.retained import Kept, kept_by_name
from memguard.evidence.kept.scans import ScansProbe
from memguard.heap.snapshot import HeapSnapshot
from memguard.records.facts import KeptOutputs, ModelCopies
from memguard.records.findings import Finding, Severity
from tests.evidence.loop import Loop, record_of, train_on

MIB = 1024**2
WIDTH = 512
EACH: int = 2 * WIDTH * WIDTH * 4
"""Bytes of a model's two matrices, roughly those of the model."""


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH))


def kept_outputs(rounds: int, make: Callable[[int], nn.Module], after: Callable[[nn.Module, int], Any]) -> Any:
    """What is told of rounds of training, each of six batches with the model that is made for it.

    The records have what all models that live take, with their gradients.
    """
    made: list[weakref.ref[nn.Module]] = []
    with Loop(kinds=[GrowingNamesProbe], device="virtual:96MiB", device_total_bytes=96 * MIB) as loop:
        for number in range(rounds):
            model = make(number)
            loop.add(model)
            made.append(weakref.ref(model))
            for _ in loop.batches(6):
                model(torch.rand(8, WIDTH)).square().mean().backward()
                end = 2 * EACH * sum(ref() is not None for ref in made)
                loop.record = record_of(loop.batch, allocated_end_bytes=end)
            after(model, number)
            del model
        loop.probes.run_end()
        loop.facts += loop.probes.take()
    return loop.of(KeptOutputs)


@pytest.fixture(autouse=True)
def nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The class begins empty in each test; a statement that empties it would be a bound."""
    for name in ("trained", "last", "average", "little", "large"):
        monkeypatch.setattr(Runs, name, [])
    yield
    cached.cache_clear()


@functools.lru_cache
def cached(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return network()


def test_models_in_a_cache_are_told_with_their_weights_and_gradients() -> None:
    """The cached function is named, with the number of models at the end and all that they keep."""
    *_, last = kept_outputs(12, lambda number: cached(number), Runs.drop)
    assert (last.place.holder, last.weights, last.cached, last.tensors) == ("cached", True, True, 12)
    assert last.bytes == pytest.approx(2 * 12 * EACH, rel=0.1)


class Runs:
    """Keeps what was trained, or the last two of it."""

    trained: ClassVar[list[Any]] = []
    last: ClassVar[list[Any]] = []
    average: ClassVar[list[Any]] = []
    little: ClassVar[list[Any]] = []
    large: ClassVar[list[Any]] = []

    @classmethod
    def keep(cls, model: nn.Module, number: int) -> None:
        cls.trained.append({"number": number, "model": model})

    @classmethod
    def drop(cls, model: nn.Module, number: int) -> None:
        """The model goes with its round."""

    @classmethod
    def keep_two(cls, model: nn.Module, number: int) -> None:
        cls.last.append(model)
        del cls.last[:-2]

    @classmethod
    def keep_average(cls, model: nn.Module, number: int) -> None:
        if not cls.average:
            cls.average.extend(weight.detach().clone() for weight in model.parameters())
        for one, other in zip(cls.average, model.parameters(), strict=True):
            one.lerp_(other.detach(), 0.1)

    @classmethod
    def keep_outputs(cls, output: torch.Tensor) -> None:
        cls.little.append(output.detach())

    @classmethod
    def keep_tables(cls) -> None:
        cls.large.append(torch.zeros(1024, 1024))


def test_models_in_the_list_of_a_class_are_told_at_its_line() -> None:
    """However they are wrapped, what grows is the list."""
    *_, last = kept_outputs(12, lambda _: network(), Runs.keep)
    assert (last.place.holder, last.tensors, last.bounded) == ("Runs.trained", 12, False)
    assert "trained.append" in last.place.source


@pytest.mark.parametrize("after", [Runs.drop, Runs.keep_two, Runs.keep_average])
def test_models_that_are_let_go_are_not_told(after: Callable[[nn.Module, int], None]) -> None:
    """Folds that free their model, a cache of two, and an average of the weights."""
    assert kept_outputs(12, lambda _: network(), after) == []


def test_a_larger_cause_that_begins_later_has_its_line(tmp_path: Path) -> None:
    """What was told first explains less than half of the growth: the other list is named as well, with its bytes."""
    model = nn.Linear(64, 128)
    with memguard.watch(model, device="virtual:128MiB", logdir=tmp_path, quiet=True) as guard:
        for number in guard.batches(range(72)):
            output = model(torch.rand(64, 64))
            output.sum().backward()
            Runs.keep_outputs(output)
            if number > 40 and number % 4 == 0:
                Runs.keep_tables()
    told = {finding.holder: finding.bytes for finding in guard.findings if finding.severity is not Severity.INFO}
    assert told["Runs.little"] == pytest.approx(len(Runs.little) * 64 * 128 * 4, rel=0.1)
    assert told["Runs.large"] == pytest.approx(len(Runs.large) * 4 * MIB, rel=0.1)
    assert "MG501" not in {finding.code for finding in guard.findings}


def test_what_is_let_go_last_is_no_longer_counted(tmp_path: Path) -> None:
    """The figures of the end are those of the end, though more was kept before."""
    model, kept = nn.Linear(64, 128), []
    with memguard.watch(model, device="virtual:128MiB", logdir=tmp_path, quiet=True) as guard:
        for _ in guard.batches(range(64)):
            output = model(torch.rand(64, 64))
            output.sum().backward()
            kept.append(output.detach())
        del kept[:20]
    (finding,) = [finding for finding in guard.findings if finding.code == "MG301"]
    assert finding.holder == "kept" and finding.count == pytest.approx(44, abs=1)  # the last one has a name of its own
    assert finding.bytes == pytest.approx(44 * 64 * 128 * 4, rel=0.05)


def below(*, whole: bool = False, **names: object) -> dict[str | None, Kept]:
    """What lies below some names, by the last part of each."""
    with HeapSnapshot([("roots", names)]) as snapshot:
        return {text: kept for (_, _, text), kept in kept_by_name(snapshot, whole=whole).items()}


class Holder:
    """Has attributes."""

    def __init__(self, **attributes: object) -> None:
        self.__dict__.update(attributes)


def test_what_graphs_saved_is_counted_once() -> None:
    """Hundreds of elements of one graph keep what it saved, and each its own few bytes; weights and gradients count."""
    layer = nn.Linear(256, 256, bias=False)
    layer(torch.rand(2, 256)).sum().backward()
    outputs = [torch.tanh(torch.tanh(layer(torch.rand(128, 256)))).sum(1) for _ in range(3)]
    parts = [part for output in outputs for part in output]
    kept = below(holder=Holder(parts=parts, layer=layer))
    graphs = 3 * 128 * (3 * 256 + 1) * 4  # the input, two times tanh, and the sums
    assert kept["Holder.layer"].bytes() == 2 * 256 * 256 * 4
    assert kept["Holder.parts"].bytes(kept["Holder.layer"].storages) == graphs
    assert kept["Holder.parts"].length == 3 * 128 and kept["Holder.parts"].is_whole


def test_all_models_of_a_long_list_are_counted_where_that_is_asked_for() -> None:
    """Of which a walk meets a sample: by themselves, and in records with a score."""
    models = [nn.Linear(8, 8, bias=False) for _ in range(80)]
    for kept in (models, [Holder(model=model, score=1.0) for model in models]):
        assert below(whole=True, holder=Holder(kept=kept))["Holder.kept"].bytes() == 80 * 8 * 8 * 4


class Snapshot:
    """Weights, and those that they came from."""

    def __init__(self, parent: Snapshot | None) -> None:
        self.parent, self.weights = parent, torch.zeros(100)


def test_all_parents_of_a_snapshot_are_counted() -> None:
    """A list that has no list: each element lies in an attribute of the next one."""
    newest = None
    for _ in range(40):
        newest = Snapshot(newest)
    assert below(holder=Holder(base=newest))["Holder.base"].bytes() == 40 * 400


def test_lists_in_a_dict_are_counted_together() -> None:
    """Few lists that are long have so many elements, few elements that are short are no lists."""
    tensor = torch.zeros(4)
    kept = below(holder=Holder(by_name={"a": [tensor] * 5, "b": [tensor] * 7}, rows=[(tensor, tensor)] * 9))
    assert (kept["Holder.by_name"].length, kept["Holder.rows"].length) == (12, 9)


def test_what_an_optimizer_holds_is_known_as_such() -> None:
    """Parameters that are added to it are trained, and told as that."""
    one, other = (torch.optim.SGD([nn.Parameter(torch.zeros(8))]) for _ in range(2))
    kept = below(holder=Holder(optimizer=one, runs=[other]))
    assert kept["Holder.optimizer"].is_optimized and not kept["Holder.runs"].is_optimized


def copies_beside(model: nn.Module) -> list[ModelCopies]:
    """What forty batches of training tell of copies of it."""
    with Loop(model, kinds=[ScansProbe, GrowingNamesProbe]) as loop:
        for _ in loop.batches(40):
            model(torch.rand(8, WIDTH)).square().mean().backward()
            loop.record = record_of(loop.batch)
        loop.probes.run_end()
        loop.facts += loop.probes.take()
    return loop.of(ModelCopies)


def test_a_model_beside_its_copy_is_one_whatever_gradients_it_has() -> None:
    """Copies are counted by their weights: a first count leaves gradients out, and so does each later one."""
    model = network()
    beside = copy.deepcopy(model)
    beside(torch.rand(8, WIDTH)).square().mean().backward()
    told = copies_beside(model)
    assert told and {(fact.copies, fact.place.holder) for fact in told} == {(1, "beside")}
    assert {fact.bytes for fact in told} == {sum(one.untyped_storage().nbytes() for one in beside.parameters())}


def test_one_copy_with_an_optimizers_state_beside_it_is_one_copy() -> None:
    """The best weights so far, kept with the optimizer's state of that time."""
    model = network()
    adam = torch.optim.Adam(model.parameters())
    model(torch.rand(8, WIDTH)).square().mean().backward()
    adam.step()
    best = copy.deepcopy({"net": model.state_dict(), "steps": adam.state_dict()})
    told = copies_beside(model)
    assert told and {(fact.copies, fact.place.holder) for fact in told} == {(1, "best")}
    assert {fact.bytes for fact in told} == {sum(one.untyped_storage().nbytes() for one in best["net"].values())}


class Stages:
    """Keeps the schedule of each stage, and with it an optimizer whose states nobody needs."""

    def __init__(self) -> None:
        self.schedules: list[Any] = []


class Schedule:
    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer = optimizer


def test_optimizers_that_pile_up_are_told_with_their_states_and_are_no_models(tmp_path: Path) -> None:
    """One model trained in stages, each with a new optimizer that a list of schedules keeps."""
    model, stages = network(), Stages()
    with memguard.watch(model, device="virtual:96MiB", logdir=tmp_path, quiet=True) as guard:
        for _ in range(8):
            optimizer = torch.optim.Adam(model.parameters())
            stages.schedules.append(Schedule(optimizer))
            for _ in range(6):
                train_on(optimizer, model(torch.rand(8, WIDTH)).square().mean())
    (found,) = [each for each in guard.findings if each.severity > Severity.INFO]
    assert (found.code, found.holder) == ("MG301", "Stages.schedules")
    assert "8 elements with optimizer states" in found.message
    assert found.bytes == pytest.approx(8 * 2 * EACH, rel=0.3)


def test_what_comes_at_once_and_stays_is_named_without_a_rate(tmp_path: Path) -> None:
    """Predictions of a validation that lie beside the next epoch of training, until the next validation clears them."""
    model, predictions = nn.Linear(64, 1024), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with memguard.watch(model, optimizer, device="virtual:128MiB", logdir=tmp_path, quiet=True) as guard:
        for _ in range(3):
            model.train()
            for _ in range(12):
                train_on(optimizer, model(torch.rand(64, 64)).square().mean())
            model.eval()
            predictions.clear()
            with torch.no_grad():
                predictions += [model(torch.rand(1024, 64)) for _ in range(6)]
    [found] = [finding for finding in guard.findings if finding.code in ("MG301", "MG501")]
    assert (found.holder, found.severity, found.bytes_per_batch) == ("predictions", Severity.INFO, 0.0)
    assert found.bytes == 24 * MIB
    assert "with every batch" not in found.message


def trained(tmp_path: Path, batches: int, after: Callable[[int, nn.Module], object], device: str) -> list[Finding]:
    """What is told of plain training in which something else happens after each step."""
    model = nn.Linear(64, 256)
    with memguard.watch(model, device=device, logdir=tmp_path, quiet=True) as guard:
        for number in guard.batches(range(batches)):
            model(torch.rand(8, 64)).square().mean().backward()
            model.zero_grad()
            after(number, model)
    return list(guard.findings)


class Cached(nn.Module):
    """A layer with room for keys and values, which sampling prepares and training does not use."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.past = nn.Linear(64, 64), torch.zeros(0)

    def prepare(self) -> None:
        self.past = torch.zeros(8, 1024, 1024)  # room for all

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not torch.is_grad_enabled():
            self.past[0, : len(x), :64] = x
        return torch.as_tensor(self.linear(x))


def test_what_came_once_and_stays_to_the_end_is_named_where_it_is_made(tmp_path: Path) -> None:
    """Not where something is written into it, and with no rate: it says when it was seen, and how much it is."""
    model = Cached()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with memguard.watch(model, optimizer, device="virtual:128MiB", logdir=tmp_path, quiet=True) as guard:
        for number in range(48):
            if number == 16:
                model.prepare()
                with torch.no_grad():
                    model(torch.rand(8, 64))
            train_on(optimizer, model(torch.rand(64, 64)).square().mean())
    [found] = guard.findings
    assert (found.code, found.holder, found.severity) == ("MG301", "Cached.past", Severity.INFO)
    assert found.bytes == 32 * MIB and "with every batch" not in found.message
    assert found.line is not None and "room for all" in linecache.getline(__file__, found.line)


class Features:
    """Keeps what modules give, by hooks that have their lists as variables."""

    def __init__(self, model: nn.Module) -> None:
        self.kept: dict[str, list[torch.Tensor]] = {}
        for name, part in model.named_children():
            part.register_forward_hook(self.made(name))

    def made(self, name: str) -> Callable[..., None]:
        store = self.kept.setdefault(name, [])

        def hook(module: nn.Module, args: Any, output: torch.Tensor) -> None:
            store.append(output.detach())

        return hook


def test_what_a_closure_fills_has_one_finding(tmp_path: Path) -> None:
    """The lists are variables of the hooks, and lie in a dict of an object as well."""
    model = nn.Sequential(nn.Linear(64, 128), nn.Linear(128, 128), nn.Linear(128, 64))
    features = Features(model)
    with memguard.watch(model, device="virtual:128MiB", logdir=tmp_path, quiet=True) as guard:
        for _ in guard.batches(range(240)):
            model(torch.rand(128, 64)).square().mean().backward()
            model.zero_grad()
    assert len(features.kept) == 3
    assert [(finding.code, finding.holder) for finding in guard.findings] == [("MG301", "store")]


def test_no_more_batches_are_told_of_than_there_were(tmp_path: Path) -> None:
    """A list that gets more with each batch than when it was first seen has more of each, and no more batches."""
    model = nn.Linear(64, 256)
    kept: list[torch.Tensor] = []
    with memguard.watch(model, device="virtual:256MiB", logdir=tmp_path, quiet=True) as guard:
        for number in guard.batches(range(120)):
            output = model(torch.rand(64, 64))
            output.square().mean().backward()
            model.zero_grad()
            kept += [output.detach()] if number < 30 else [output.detach(), *output.detach().expand(7, 64, 256).clone()]
    [found] = [finding for finding in guard.findings if finding.code == "MG301"]
    assert found.bytes == pytest.approx((30 + 90 * 8) * 64 * 1024, rel=0.1)
    told = int(found.message.partition("tensors of ")[2].partition(" batches")[0])
    assert 108 <= told <= 120


class Filters:
    """Remembers what a method of its own answers."""

    def __init__(self) -> None:
        self.made = functools.lru_cache(maxsize=None)(self._make)

    def _make(self, speed: float) -> torch.Tensor:
        return torch.full((64, 64), speed)


def test_a_cache_of_a_method_is_told_where_it_is_made_and_as_a_cache(tmp_path: Path) -> None:
    """It has no decorator: an attribute holds it."""
    model, filters = nn.Linear(64, 64), Filters()
    with memguard.watch(model, device="virtual:64MiB", logdir=tmp_path, quiet=True) as guard:
        for number in range(300):
            model(torch.rand(8, 64) @ filters.made(float(number))).sum().backward()
            model.zero_grad()
    [found] = [finding for finding in guard.findings if finding.holder]
    assert (found.code, found.holder) == ("MG501", "Filters.made") and "is a cache" in found.message
    assert found.line is not None and "lru_cache" in linecache.getline(__file__, found.line)


def watch_tables(model: nn.Module) -> None:
    """Each call adds one more hook, which has a table of its own."""
    table = torch.zeros(1024, 1024)

    def copy_rows(module: nn.Module, args: Any, output: torch.Tensor) -> None:
        table[: len(output), : output.shape[1]].copy_(output.detach())

    model[0].register_forward_hook(copy_rows)  # type: ignore[operator]


def watch_rows(model: nn.Module) -> None:
    """The same by a function that makes the hook."""

    def make(table: torch.Tensor) -> Callable[..., None]:
        def keep_rows(module: nn.Module, args: Any, output: torch.Tensor) -> None:
            table[: len(output), : output.shape[1]].copy_(output.detach())

        return keep_rows

    model[0].register_forward_hook(make(torch.zeros(1024, 1024)))  # type: ignore[operator]


def with_hooks_that_pile_up(
    device: str, logdir: Path, watch: Callable[[nn.Module], None] = watch_tables
) -> tuple[list[str], memguard.Finding]:
    """Sixteen hooks with tables of 4 MiB: which codes there were while the run went on, and the finding at its end."""
    model = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64))
    with memguard.watch(model, device=device, logdir=logdir, quiet=True) as guard:
        for number in guard.batches(range(160)):
            if number % 10 == 0:
                watch(model)
            model(torch.rand(8, 64)).square().mean().backward()
            model.zero_grad()
        running = [finding.code for finding in guard.findings]
    [found] = guard.findings
    return running, found


@pytest.mark.parametrize(("device", "running"), [("virtual:256MiB", ["MG301"]), ("virtual:4GiB", [])])
def test_hooks_that_pile_up_on_a_part_are_named_where_they_are_registered(
    device: str, running: list[str], tmp_path: Path
) -> None:
    """What hooks keep is no part of the module; little of the device is named as the run ends, over all hooks."""
    told, found = with_hooks_that_pile_up(device, tmp_path)
    line = 1 + Path(__file__).read_text().splitlines().index(
        "    model[0].register_forward_hook(copy_rows)  # type: ignore[operator]"
    )
    assert (told, found.code, found.holder, found.line) == (running, "MG301", "copy_rows", line)
    assert found.bytes == pytest.approx(16 * 4 * MIB, rel=0.1)


def test_a_hook_that_a_function_makes_is_named_where_it_is_registered(tmp_path: Path) -> None:
    """The call that registers it has the name of its maker alone."""
    _, found = with_hooks_that_pile_up("virtual:256MiB", tmp_path, watch_rows)
    assert found.holder == "keep_rows" and found.line is not None
    assert "register_forward_hook(make(" in linecache.getline(__file__, found.line)


class Scored:
    """Two lists that are filled side by side."""

    def __init__(self) -> None:
        self.scores: list[torch.Tensor] = []
        self.labels: list[torch.Tensor] = []

    def add(self) -> None:
        self.scores.append(torch.zeros(128, 1024))
        self.labels.append(torch.zeros(256, 1024))


def test_lists_that_are_filled_side_by_side_are_measured_together_to_the_end(tmp_path: Path) -> None:
    """The finding names one of them and speaks of both: so do its bytes and its count."""
    scored = Scored()
    [found] = trained(tmp_path, 60, lambda *_: scored.add(), "virtual:256MiB")
    assert found.holder == "Scored.scores" and "`Scored.labels` beside it" in found.message
    assert found.bytes == pytest.approx(60 * 1.5 * MIB, rel=0.05)


class Answer:
    """What an evaluation came to, as a library hands it on."""

    def __init__(self, logits: torch.Tensor) -> None:
        self.logits = logits.numpy().reshape(64, -1)[1:]


def test_arrays_that_show_tensors_are_what_keeps_them(tmp_path: Path) -> None:
    """An array made of a tensor, or of such an array, has its memory from the tensor."""
    answers: list[Answer] = []

    def evaluate(number: int, model: nn.Module) -> None:
        if number % 10 == 0:
            with torch.no_grad():
                answers.append(Answer(model(torch.rand(4096, 64))))

    findings = trained(tmp_path, 160, evaluate, "virtual:256MiB")
    found = next(finding for finding in findings if finding.code == "MG301")
    assert found.holder == "answers"
    assert found.bytes == pytest.approx(16 * 4 * MIB, rel=0.1)


class States:
    """What an evaluation brings to the host: the list is made anew each time."""

    tokens: tuple[torch.Tensor, ...] | list[torch.Tensor] = ()

    def add(self) -> None:
        self.tokens = [*self.tokens, torch.rand(64, 1024).cpu()]


def test_what_is_copied_to_the_host_is_told_as_kept_there(tmp_path: Path) -> None:
    """As on a GPU: a virtual device counts it as its own, and its rise is what shows the name."""
    states = States()
    [found] = trained(tmp_path, 100, lambda *_: states.add(), "virtual:256MiB")
    assert (found.code, found.holder) == ("MG701", "States.tokens")


def test_tensors_that_are_keys_are_counted_to_the_end_though_their_dict_is_gone_by_then(tmp_path: Path) -> None:
    """A tensor is equal to itself alone: each row is another key, and keeps its batch."""
    model, batches = nn.Linear(400, 64), 90

    def train() -> None:
        counts: dict[torch.Tensor, int] = {}
        for _ in range(batches):
            rows = torch.rand(96, 400)
            model(rows).sum().backward()
            model.zero_grad()
            for row in rows:
                counts[row] = counts.get(row, 0) + 1

    with memguard.watch(model, device="virtual:512MiB", logdir=tmp_path, quiet=True) as guard:
        train()
    [found] = guard.findings
    assert found.holder == "counts" and found.bytes is not None
    assert abs(found.bytes - batches * 96 * 400 * 4) <= 0.1 * batches * 96 * 400 * 4
    assert found.line is not None and "counts.get" in linecache.getline(__file__, found.line)


class Streams:
    """Begins a pass through shuffled rows, and keeps those that nobody went through to the end."""

    def __init__(self, rows: torch.Tensor) -> None:
        self.rows, self.begun = rows, list[Iterator[torch.Tensor]]()

    def begin(self) -> Iterator[torch.Tensor]:
        self.begun.append(self._walk())
        return self.begun[-1]

    def _walk(self) -> Iterator[torch.Tensor]:
        order = self.rows[torch.randperm(len(self.rows))]
        yield from order.split(32)


def test_generators_are_named_by_the_list_that_keeps_them(tmp_path: Path) -> None:
    """Not by the variable that each of them has."""
    model, streams = nn.Linear(256, 64), Streams(torch.rand(1200, 256))
    with memguard.watch(model, device="virtual:512MiB", logdir=tmp_path, quiet=True) as guard:
        for _ in range(14):
            for rows in itertools.islice(streams.begin(), 8):
                model(rows).sum().backward()
                model.zero_grad()
    [found] = guard.findings
    assert found.holder == "Streams.begun"


class Phase(enum.Enum):
    """Parts of a run, each with what was computed in it."""

    WARM_UP = 1
    MAIN = 2

    def __init__(self, number: int) -> None:
        self.features: list[torch.Tensor] = []


def test_a_part_that_grows_no_longer_counts_with_the_rest_of_its_holder(tmp_path: Path) -> None:
    """The class and its first member lead to a list that is full: they are no others who hold the same."""
    model, each = nn.Linear(64, 256), 64 * 256 * 4
    with memguard.watch(model, device="virtual:512MiB", logdir=tmp_path, quiet=True) as guard:
        for number in range(120):
            phase = Phase.WARM_UP if number < 12 else Phase.MAIN
            out = model(torch.rand(64, 64))
            out.sum().backward()
            model.zero_grad()
            phase.features.append(out.detach())
    [found] = guard.findings
    assert found.holder == "Phase.features" and found.bytes is not None
    assert 117 * each <= found.bytes <= 120 * each
