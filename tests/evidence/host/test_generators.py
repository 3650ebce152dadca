"""What a generator keeps of the batches that it gave out."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from memguard.evidence.host.datasets import LOOKS, GeneratorsProbe
from memguard.evidence.kept.scans import ScansProbe
from memguard.records.facts import KeptOnHost, KeptOutputs
from tests.evidence.loop import Loop, record_of


def batches(count: int, *, keep: bool) -> Iterator[torch.Tensor]:
    given = []
    for _ in range(count):
        x = torch.randn(16, 32)
        if keep:
            given.append(x)
        yield x


def train(*, keep: bool) -> Loop:
    model, count = nn.Linear(32, 2), 64
    with Loop(model, kinds=[GeneratorsProbe, ScansProbe]) as loop:
        for _, x in zip(loop.batches(count), batches(count, keep=keep), strict=False):
            model(x).sum().backward()
            assert len(loop.watch.generators) == 0 or loop.batch >= LOOKS[0]
    return loop


def test_a_generators_own_list_is_named() -> None:
    """Nobody but the loop refers to the generator, and yet its list is found, with the line that fills it."""
    loop = train(keep=True)
    (fact,) = loop.of(KeptOutputs)
    assert (fact.place.holder, fact.place.source) == ("given", "given.append(x)")
    assert loop.watch.generators == []


def test_a_generator_that_keeps_nothing_is_silent() -> None:
    """Being found is no fault."""
    assert train(keep=False).of(KeptOutputs) == []


@pytest.mark.parametrize("grows", [False, True])
def test_nothing_is_looked_for_where_memory_does_not_grow(grows: bool) -> None:
    """To go over all objects takes as long as hundreds of short batches."""
    model = nn.Linear(32, 2)
    found = False
    with Loop(model, kinds=[GeneratorsProbe]) as loop:
        for number, x in zip(loop.batches(32), batches(32, keep=False), strict=False):
            end = 4096 * number if grows else 4096
            loop.record = record_of(number, allocated_end_bytes=end, host_rss_bytes=1 << 28)
            model(x).sum().backward()
            found = found or bool(loop.watch.generators)
    assert found is grows


def test_nothing_is_looked_for_where_the_host_has_grown_and_grows_no_more() -> None:
    """Before the fifth batch a run allocates what it needs once, memguard too."""
    model = nn.Linear(32, 2)
    with Loop(model, kinds=[GeneratorsProbe]) as loop:
        for number, x in zip(loop.batches(16), batches(16, keep=False), strict=False):
            rss = (1 << 28) + (min(number, 3) << 20)
            loop.record = record_of(number, host_rss_bytes=rss)
            model(x).sum().backward()
            assert loop.watch.generators == []


class Decoded(Dataset[torch.Tensor]):
    """Pictures, kept as they are decoded."""

    def __init__(self) -> None:
        self.images: dict[int, np.ndarray] = {}

    def __len__(self) -> int:
        return 4096

    def __getitem__(self, index: int) -> torch.Tensor:
        if index not in self.images:
            self.images[index] = np.ones(4096, dtype=np.float32)
        return torch.from_numpy(self.images[index][:32].copy())


def test_a_dataset_that_only_the_loops_own_iterator_holds_is_found() -> None:
    """No variable leads to it."""
    model = nn.Linear(32, 2)
    with Loop(model, kinds=[GeneratorsProbe, ScansProbe]) as loop:
        for _, x in zip(loop.batches(64), DataLoader(Decoded(), batch_size=16), strict=False):
            model(x).sum().backward()
    (fact,) = loop.of(KeptOnHost)
    assert fact.place.holder == "Decoded.images" and "self.images[index] =" in (fact.place.source or "")
    assert loop.watch.datasets == []
