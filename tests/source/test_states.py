"""What is made anew from what it was."""

from pathlib import Path

import pytest

from memguard.records.facts import Place
from memguard.source.stores import makes_state

CLASS = """class Memory:
    def read(self):
        return self.m.detach()

    def update(self, z):
        {}
"""
STATES = {
    "blended": ("self.m = 0.9 * self.m + 0.1 * z", True),
    "by a function": ("self.m = self.m.lerp(z, 0.1)", True),
    "by a part": ("self.m = self.cell(z, self.m)", True),
    "through a variable": ("new = 0.9 * self.m + 0.1 * z\n        self.m = F.normalize(new)", True),
    "through a method": ("self.m = self.cell(z, self.read())", True),
    "some rows": ("self.m[z] = self.cell(z, self.m[z])", True),
    "one of two": ("self.m = z if self.m is None else self.m + z", True),
    "a sum in place": ("self.m += z", False),
    "anew": ("self.m = z.mean(0)", False),
    "a queue": ("self.m = torch.cat([self.m, z])[-64:]", False),
    "a queue that begins": ("self.m = z if self.m is None else torch.cat([self.m, z])", False),
    "a queue through a variable": ("new = torch.cat([self.m, z])\n        self.m = new", False),
    "an element of another": ("self.other[0] = self.m", False),
}


@pytest.mark.parametrize("name", STATES)
def test_a_state_is_made_from_itself(tmp_path: Path, name: str) -> None:
    """A sum in place, a queue, and what is made of the batch alone are none."""
    statement, expected = STATES[name]
    text, file = CLASS.format(statement), tmp_path / "memory.py"
    file.write_text(text)
    assert makes_state(Place(file=str(file), line=len(text.splitlines()), holder="Memory.m")) is expected


def test_a_variable_may_be_one_too(tmp_path: Path) -> None:
    """Of a script, or of a function."""
    file = tmp_path / "train.py"
    file.write_text("for z in batches:\n    centres = F.normalize(0.9 * centres + 0.1 * z)\n    total = z\n")
    assert makes_state(Place(file=str(file), line=2, holder="centres"))
    assert not makes_state(Place(file=str(file), line=3, holder="total"))


def test_without_a_source_nothing_is_known(tmp_path: Path) -> None:
    """No place, no line, no holder."""
    assert not makes_state(Place())
    assert not makes_state(Place(file=str(tmp_path / "none.py"), line=1, holder="m"))
