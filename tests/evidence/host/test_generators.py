"""What a generator keeps of the batches that it gave out."""

from collections.abc import Iterator

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from memguard.evidence.host.generators import LOOKS, GeneratorsProbe
from memguard.evidence.kept.scans import ScansProbe
from memguard.records.facts import KeptOnHost, KeptOutputs
from tests.evidence.loop import Loop


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
