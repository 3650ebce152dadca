"""The line that decides which samples make a batch."""

from __future__ import annotations

from pathlib import Path

import pytest

from memguard.evidence.host.datasets import batching_place
from memguard.records.facts import NOWHERE
from tests.evidence.scripts import MARK, marked_lines, user_module

HEAD = """
from torch.utils.data import BatchSampler, DataLoader, Sampler
words = list(range(40))
"""
NAMED = """
def fit(train, loader):
    for _ in train:
        place.append(ask())
        break
held_out = DataLoader(words[:8], batch_size=4)
loader = DataLoader(words, batch_size=4)  # <-
fit(loader, held_out)
"""
ATTRIBUTE = """
class Trainer:
    def __init__(self):
        self.train_loader = DataLoader(words, batch_size=4)  # <-
        self.val_loader = DataLoader(words[:8], batch_size=4)
    def fit(self):
        for _ in self.train_loader:
            place.append(ask())
            break
Trainer().fit()
"""
RETURNED = """
class Data:
    def train_dataloader(self):
        return DataLoader(words, batch_size=4)  # <-
    def val_dataloader(self):
        return DataLoader(words[:8], batch_size=4)
for _ in Data().train_dataloader():
    place.append(ask())
    break
"""
SAMPLER = """
class InOrder(Sampler):
    def __init__(self, lengths):
        order = sorted(range(len(lengths)), key=lengths.__getitem__)
        self.batches = [order[at : at + 4] for at in range(0, len(order), 4)]  # <-
    def __iter__(self):
        return iter(self.batches)
for _ in DataLoader(words, batch_sampler=InOrder(words)):
    place.append(ask())
    break
"""
YIELDED = """
class InOrder(Sampler):
    def __init__(self, lengths):
        self.order = sorted(range(len(lengths)), key=lengths.__getitem__)
    def __iter__(self):
        for at in range(0, len(self.order), 4):
            yield self.order[at : at + 4]  # <-
for _ in DataLoader(words, batch_sampler=InOrder(words)):
    place.append(ask())
    break
"""
PASSED_ON = """
class FromHere(Sampler):
    def __init__(self, inner):
        self.inner = inner
    def __iter__(self):
        for batch in self.inner:
            yield batch
inner = BatchSampler(range(40), 4, False)
loader = DataLoader(words, batch_sampler=FromHere(inner))  # <-
for _ in loader:
    place.append(ask())
    break
"""
ONE_BY_ONE = """
class InOrder(Sampler):
    def __iter__(self):
        at = 0
        while at < 40:
            yield at
            at += 1
loader = DataLoader(words, sampler=InOrder(), batch_size=None)  # <-
for _ in loader:
    place.append(ask())
    break
"""
SEVERAL = """
loaders = [DataLoader(words, batch_size=4), 1]
again = [DataLoader(words[:8], batch_size=4), 1]
for _ in loaders[0]:
    place.append(ask())
    break
"""


@pytest.mark.parametrize("body", [NAMED, ATTRIBUTE, RETURNED, SAMPLER, YIELDED, PASSED_ON, ONE_BY_ONE, SEVERAL])
def test_the_line_that_makes_the_batches_is_found(body: str, tmp_path: Path) -> None:
    """The loader's call by the names that hold it, or where the sampler makes them; nothing where it may be another."""
    text, file, place = HEAD + body, tmp_path / "train.py", []
    with user_module(text, file, "train") as module:
        module.__dict__.update(ask=batching_place, place=place)
        exec(compile(text, str(file), "exec"), module.__dict__)
    (found,) = place
    assert {found.line} - {None} == marked_lines(file)
    assert (found is NOWHERE) is (MARK not in text)


def test_a_loader_of_another_file_is_not_taken_for_the_one_in_use(tmp_path: Path) -> None:
    """Lightning's method in a file that does not run says nothing where the running file makes loaders."""
    data, text, place = tmp_path / "data.py", HEAD + SEVERAL, []
    with user_module(HEAD + RETURNED, data, "data"), user_module(text, tmp_path / "train.py", "train") as module:
        module.__dict__.update(ask=batching_place, place=place)
        exec(compile(text, str(tmp_path / "train.py"), "exec"), module.__dict__)
    assert place == [NOWHERE]


def test_without_a_loader_there_is_no_such_line() -> None:
    """A program that makes its batches by hand is told of no line."""
    assert batching_place() is NOWHERE
