"""Two counts of the containers in reach name what grows."""

import sys
from collections import defaultdict

import torch
from torch import nn

from memguard.evidence.kept.census import find_growth
from memguard.evidence.naming.holders import HolderSearch


class Metric:
    def __init__(self) -> None:
        self.preds: list[torch.Tensor] = []
        self.names = ["a", "b", "c"]

    def update(self, value: torch.Tensor) -> None:
        self.preds.append(value * 2)  # grows


def test_growing_list_is_named_with_its_rate() -> None:
    """A list that never went through a model's output is named, with elements and bytes."""
    metric = Metric()
    still = [torch.ones(4) for _ in range(5)]
    for _ in range(4):
        metric.update(torch.ones(256))
    before = HolderSearch().snapshot.lengths()
    for _ in range(3):
        metric.update(torch.ones(256))
    growth = find_growth(HolderSearch(), before)
    assert [(found.place.holder, found.kind, found.elements, found.bytes) for found in growth] == [
        ("Metric.preds", "list", 3, 3 * 1024)
    ]
    assert growth[0].place.source == "self.preds.append(value * 2)"
    assert len(still) == 5


class Bank:
    def __init__(self) -> None:
        self.slides: defaultdict[int, list[torch.Tensor]] = defaultdict(list)

    def add(self, key: int, tokens: torch.Tensor) -> None:
        self.slides[key].append(tokens[0])  # under a new key


def test_a_dict_that_makes_its_lists_itself_grows_where_they_are_filled() -> None:
    """Not where the defaultdict was made."""
    bank = Bank()
    for key in range(4):
        bank.add(key, torch.ones(2, 256))
    before = HolderSearch().snapshot.lengths()
    for key in range(4, 8):
        bank.add(key, torch.ones(2, 256))
    (growth,) = find_growth(HolderSearch(), before)
    assert growth.place.source == "self.slides[key].append(tokens[0])"


def test_lists_that_objects_of_one_class_have_count_together() -> None:
    """Each of four meters grows too little for a finding; together they grow enough."""
    meters = [Metric() for _ in range(4)]
    before = HolderSearch().snapshot.lengths()
    for meter in meters:
        meter.preds += [bytearray(30_000) for _ in range(2)]  # type: ignore[list-item]
    found = find_growth(HolderSearch(), before, nbytes=1, host_bytes=200_000)
    assert {(growth.place.holder, growth.elements, growth.alike) for growth in found} == {("Metric.preds", 2, 4)}
    assert find_growth(HolderSearch(), before, nbytes=1, host_bytes=400_000) == ()


def test_one_object_many_times_takes_no_more_host_memory() -> None:
    """The order in which a few objects were called, as FSDP notes it: the list grows by references alone."""
    parts = [[bytearray(100_000)] for _ in range(2)]
    order = parts * 4
    before = HolderSearch().snapshot.lengths()
    order += parts * 8
    assert find_growth(HolderSearch(), before, nbytes=1, host_bytes=100_000) == ()
    order += [[bytearray(100_000)] for _ in range(8)]
    assert [found.elements for found in find_growth(HolderSearch(), before, nbytes=1, host_bytes=100_000)] == [24]


def test_nothing_grows_in_a_steady_program() -> None:
    """Containers that are rewritten in place are not told."""
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
    last = {"out": model(torch.ones(1, 4))}
    before = HolderSearch(models=[model]).snapshot.lengths()
    for _ in range(3):
        last["out"] = model(torch.ones(1, 4))
    assert find_growth(HolderSearch(models=[model]), before) == ()


def test_what_a_traceback_keeps_is_not_the_lists() -> None:
    """A list of sys.exc_info() grows in elements; the tensors belong to the frames of the failed steps."""
    failures: list[object] = []

    def step() -> None:
        hidden = torch.ones(256)
        raise ValueError(hidden.shape)

    def fail() -> None:
        try:
            step()
        except ValueError:
            failures.append((len(failures), sys.exc_info()))

    fail()
    before = HolderSearch().snapshot.lengths()
    fail()
    assert [(found.elements, found.bytes) for found in find_growth(HolderSearch(), before)] == [(1, 0)]
    failures.clear()


def test_only_the_inner_list_is_told() -> None:
    """A dict around the list that grows is not told a second time."""
    logs: dict[str, list[torch.Tensor]] = {"loss": [], "acc": []}
    before = HolderSearch().snapshot.lengths()
    logs["loss"].append(torch.ones(1))
    (growth,) = find_growth(HolderSearch(), before)
    assert growth.place.holder == "logs"
    assert growth.place.source == 'logs["loss"].append(torch.ones(1))'


def test_numbers_count_too() -> None:
    """A list of plain numbers grows in elements, without bytes."""
    steps: list[tuple[int, str]] = []
    before = HolderSearch().snapshot.lengths()
    for step in range(10):
        steps.append((step, "x"))  # noqa: PERF401
    (growth,) = find_growth(HolderSearch(), before)
    assert (growth.place.holder, growth.elements, growth.bytes) == ("steps", 10, 0)


def test_rows_of_what_is_there_anyway_bring_nothing() -> None:
    """Rows of data that another name holds as a whole; of a tensor that nobody else holds they bring all of it."""
    data, rows, pins = torch.zeros(64, 256), [], []
    for index in range(4):
        rows.append(data[index])
        pins.append(torch.zeros(64, 256)[0])
    before = HolderSearch().snapshot.lengths()
    for index in range(4):
        rows.append(data[index + 4])
        pins.append(torch.zeros(64, 256)[0])
    found = {growth.place.holder: growth.bytes for growth in find_growth(HolderSearch(), before)}
    assert (found["rows"], found["pins"]) == (0, 4 * 64 * 1024)


def test_of_a_long_list_of_tuples_the_elements_are_counted() -> None:
    """A walk reads a dozen of them: how many tensors these have says nothing of how many elements there are."""
    pairs = [(torch.ones(256), torch.ones(256), index) for index in range(200)]
    before = HolderSearch().snapshot.lengths()
    pairs += [(torch.ones(256), torch.ones(256), index) for index in range(200)]
    (growth,) = find_growth(HolderSearch(), before)
    assert (growth.elements, growth.bytes) == (200, 200 * 2048)
