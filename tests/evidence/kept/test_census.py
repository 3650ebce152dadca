"""Two counts of the containers in reach name what grows."""

import torch

from memguard.evidence.kept.census import find_growth
from memguard.evidence.naming.holders import HolderSearch


def lengths() -> dict[int, int]:
    """How long each container in reach is, by its identity."""
    return {id(link.value): size.length for link, size in HolderSearch().snapshot.containers()}


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
    before = lengths()
    for _ in range(3):
        metric.update(torch.ones(256))
    growth = find_growth(HolderSearch(), before)
    assert [(found.place.holder, found.elements, found.bytes) for found in growth] == [("Metric.preds", 3, 3 * 1024)]
    assert growth[0].place.source == "self.preds.append(value * 2)"
    assert len(still) == 5


def test_lists_that_objects_of_one_class_have_count_together() -> None:
    """Each of four meters grows too little for a finding; together they grow enough."""
    meters = [Metric() for _ in range(4)]
    before = lengths()
    for meter in meters:
        meter.preds += [bytearray(30_000) for _ in range(2)]  # type: ignore[list-item]
    found = find_growth(HolderSearch(), before, host_bytes=200_000)
    assert {(growth.place.holder, growth.elements, growth.alike) for growth in found} == {("Metric.preds", 2, 4)}
    assert find_growth(HolderSearch(), before, host_bytes=400_000) == ()


def test_one_object_many_times_takes_no_more_host_memory() -> None:
    """The order in which a few objects were called, as FSDP notes it: the list grows by references alone."""
    parts = [[bytearray(100_000)] for _ in range(2)]
    order = parts * 4
    before = lengths()
    order += parts * 8
    assert find_growth(HolderSearch(), before, host_bytes=100_000) == ()
    order += [[bytearray(100_000)] for _ in range(8)]
    assert [found.elements for found in find_growth(HolderSearch(), before, host_bytes=100_000)] == [24]


def test_rows_of_what_is_there_anyway_bring_nothing() -> None:
    """Rows of data that another name holds as a whole; of a tensor that nobody else holds they bring all of it."""
    data, rows, pins = torch.zeros(64, 256), [], []
    for index in range(4):
        rows.append(data[index])
        pins.append(torch.zeros(64, 256)[0])
    before = lengths()
    for index in range(4):
        rows.append(data[index + 4])
        pins.append(torch.zeros(64, 256)[0])
    found = {growth.place.holder: growth.bytes for growth in find_growth(HolderSearch(), before)}
    assert (found["rows"], found["pins"]) == (0, 4 * 64 * 1024)
