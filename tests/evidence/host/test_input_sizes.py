"""The size of the inputs, and of the longest one that a dataset will bring."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset, Subset

from memguard.evidence.host.datasets import Reading, may_cut
from memguard.evidence.host.input_sizes import InputSizesProbe, lengths_in, longest_ahead, stretched
from memguard.records.facts import InputSize
from tests.evidence.loop import Loop


class Sentences(Dataset[Any]):
    """Sequences of 20 to 60 tokens, and one of 900 near the end."""

    def __init__(self) -> None:
        lengths = random.Random(0)
        self.items = [torch.ones(lengths.randint(20, 60), dtype=torch.long) for _ in range(400)]
        self.items[390] = torch.ones(900, dtype=torch.long)

    def __len__(self) -> int:
        return 400

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.items[index]


def pad(items: list[torch.Tensor]) -> torch.Tensor:
    return pad_sequence(items, batch_first=True)


def cut(items: list[torch.Tensor]) -> torch.Tensor:
    return pad_sequence(items, batch_first=True).narrow(1, 0, min(50, max(map(len, items))))


def sizes(dataset: Any, collate: Any = pad) -> list[InputSize]:
    """What is told of forty batches of four."""
    model = nn.Embedding(4, 8)
    batches = iter(DataLoader(dataset, batch_size=4, collate_fn=collate))
    with Loop(model, kinds=[InputSizesProbe]) as loop:
        for _ in loop.batches(40):
            model(next(batches))
    return loop.of(InputSize)


@pytest.mark.parametrize("wrap", [lambda dataset: dataset, lambda dataset: Subset(dataset, range(400))])
def test_the_longest_sample_to_come_is_read_from_the_dataset(wrap: Any) -> None:
    """A list of tensors tells it, also through a subset; the place is the call that makes the loader."""
    told = sizes(wrap(Sentences()))
    assert told[0].largest_elements is None
    assert told[-1].largest_elements == 4 * 900
    assert told[-1].samples == "items"
    assert told[-1].place.holder == "batches" and told[-1].place.source.startswith("batches = iter(DataLoader(")


def test_where_batches_are_cut_nothing_is_foretold() -> None:
    """Longer samples than any batch so far, many of them: they have come, and were cut."""
    assert {fact.largest_elements for fact in sizes(Sentences(), cut)} == {None}


def test_equal_batches_are_not_told() -> None:
    """Without a second size there is nothing to learn."""
    model = nn.Linear(4, 2)
    with Loop(model, kinds=[InputSizesProbe]) as loop:
        for _ in loop.batches(20):
            model(torch.randn(3, 4))
    assert loop.of(InputSize) == []


def test_lengths_must_explain_what_was_seen() -> None:
    """Other numbers than the samples' lengths foretell nothing; sorted ones do, tokens at the ends are added."""
    assert longest_ahead([12, 30, 31], [5, 9, 400], batch_size=2) is None
    assert longest_ahead([10, 20, 30], list(range(5, 100, 5)), batch_size=2) == 95
    assert longest_ahead([12, 22, 32], list(range(5, 100, 5)), batch_size=2) == 97
    assert longest_ahead([30, 10, 30], [10, 20, 30], batch_size=2) is None


def test_lengths_are_read_in_many_forms() -> None:
    """Texts, records, tuples, images of two dimensions, counts under a telling name; not plain ids."""
    forms = {
        "texts": ["a" * n for n in range(1, 21)],
        "records": [{"ids": [0] * n, "label": 1} for n in range(1, 21)],
        "pairs": [(torch.zeros(n), 0) for n in range(1, 21)],
        "lengths": torch.arange(1, 21),
        "ids": list(range(1, 21)),
        "few": ["a", "bb"],
    }
    assert [(name, max(numbers)) for name, numbers in lengths_in(forms)] == [
        ("lengths" if name == "lengths" else name, 20) for name in ("texts", "records", "pairs", "lengths")
    ]


def test_a_batch_is_stretched_in_every_input() -> None:
    """Tokens and their mask grow alike, the batch and the features stay, even where the numbers are equal."""
    entries = (("ids", (8, 8), "int64"), ("mask", (8, 8), "bool"), ("x", (8, 8, 3), "float32"))
    assert [shape for _, shape, _ in stretched(entries, 8, 50)] == [(8, 50), (8, 50), (8, 50, 3)]


@pytest.mark.parametrize(
    ("collate", "cuts"),
    [
        (pad, False),
        (lambda items: pad_sequence([item[:50] for item in items], batch_first=True), True),
        (None, False),
    ],
)
def test_a_cut_in_the_source_is_seen(collate: Any, cuts: bool) -> None:
    """A slice with an end in the dataset or in the function that makes batches; not where a value is put."""
    assert may_cut(Reading(Sentences(), 0, 4, collate)) is cuts
