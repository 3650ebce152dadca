"""Hooks that put aside what autograd saves, read from the program's text."""

from pathlib import Path

import pytest

from memguard.records.facts import Place
from memguard.source.sites import remedy_at

FUNCTIONS = """
stash = {}

def pack(tensor):
    stash[len(stash)] = tensor
    return len(stash) - 1

def unpack(number):
    return UNPACKED

with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
    loss = model(x)
"""
CLASS = """
class Offload(saved_tensors_hooks):
    def __init__(self):
        self.stash = {}
        super().__init__(self.pack, self.unpack)

    def pack(self, tensor):
        self.stash[len(self.stash)] = tensor

    def unpack(self, number):
        return UNPACKED
"""


@pytest.mark.parametrize(
    ("text", "unpacked", "function", "holder"),
    [
        (FUNCTIONS, "stash[number]", "pack", "stash"),
        (CLASS, "self.stash[number]", "Offload.pack", "Offload.stash"),
    ],
)
def test_a_stash_that_backward_only_reads_has_its_own_remedy(
    tmp_path: Path, text: str, unpacked: str, function: str, holder: str
) -> None:
    """It names the hook in which to take out what the other one put there; where that is done, nothing is said."""
    file = tmp_path / "train.py"
    file.write_text(text.replace("UNPACKED", unpacked))
    remedy = remedy_at(Place(file=str(file), line=5, function=function, holder=holder))
    assert remedy is not None and "stash.pop(key) in unpack()" in remedy
    assert remedy_at(Place(file=str(file), line=5, function="train", holder=holder)) is None
    other = tmp_path / "healthy.py"
    other.write_text(text.replace("UNPACKED", unpacked.replace("[number]", ".pop(number)")))
    assert remedy_at(Place(file=str(other), line=5, function=function, holder=holder)) is None


RANK = """
class Rank(BASE):
    def RESET(self):
        self.rows = []

    def update(self, row):
        self.rows.append(row)
"""


@pytest.mark.parametrize(
    ("base", "reset", "call"),
    [("torchmetrics.Metric", "note", "reset()"), ("object", "reset", "reset()"), ("object", "clear", "clear()")],
)
def test_what_has_a_method_to_empty_it_is_to_be_emptied(tmp_path: Path, base: str, reset: str, call: str) -> None:
    """A metric inherits its own; a class may write one."""
    file = tmp_path / "rank.py"
    file.write_text(RANK.replace("BASE", base).replace("RESET", reset))
    remedy = remedy_at(Place(file=str(file), line=7, function="Rank.update", holder="Rank.rows"))
    assert remedy is not None and remedy.startswith(f"call {call} on the Rank")


def test_what_nothing_empties_has_no_such_remedy(tmp_path: Path) -> None:
    """The constructor, and a method of another name, are not meant for that."""
    file = tmp_path / "rank.py"
    file.write_text(RANK.replace("BASE", "object").replace("RESET", "__init__"))
    assert remedy_at(Place(file=str(file), line=7, function="Rank.update", holder="Rank.rows")) is None
