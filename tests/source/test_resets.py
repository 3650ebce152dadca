"""Where the source empties what a statement fills, or makes it anew from what it was; from the syntax tree alone."""

from pathlib import Path

import pytest

from memguard.records.facts import Place
from memguard.source.bounds import Bound, Reset, bounds_of, reset_of
from memguard.source.stores import makes_state

CASES = {
    "for step in data:\n    log.append(x)": Reset.NEVER,
    "for step in data:\n    log.append(x)\n    if step % 9 == 0:\n        log = []": Reset.HERE,
    "for step in data:\n    log.append(x)\n    if len(log) > 4:\n        log.pop(0)": Reset.HERE,
    "for step in data:\n    log.append(x)\n    log = log[-4:]": Reset.HERE,
    "log, other = deque(maxlen=9), []\nfor step in data:\n    log.append(x)": Reset.HERE,
    "for epoch in runs:\n    log = []\n    for step in data:\n        log.append(x)": Reset.ELSEWHERE,
    "for epoch in runs:\n    for step in data:\n        log['x'].append(x)\n    for part in log.values():\n"
    "        part.clear()": Reset.HERE,
    "for step in data:\n    log['x'].append(x)\n    for part in log['x']:\n        part.pop('image')": Reset.NEVER,
}


@pytest.mark.parametrize("text", CASES)
def test_what_is_emptied_is_told_from_what_only_grows(text: str, tmp_path: Path) -> None:
    """By what stands in the loop that fills it, and in those around it."""
    file = tmp_path / "case.py"
    file.write_text(f"log = []\n{text}\n")
    line = next(n for n, one in enumerate(file.read_text().splitlines(), 1) if ".append(x)" in one)
    assert reset_of(str(file), line, "log") is CASES[text]


RANKS = """class Ranks(Metric):
    def update(self, x):
        self.kept.append(x)
class Plain:
    def update(self, x):
        self.kept.append(x)
ranks, mean = Ranks(), Mean()
def epoch_end():
    mean.reset()
    {call}
"""


@pytest.mark.parametrize(
    ("call", "where"),
    [("ranks.reset()", Reset.ELSEWHERE), ("metrics['ranks'].reset()", Reset.ELSEWHERE), ("pass", Reset.NEVER)],
)
def test_a_reset_that_a_class_has_from_a_library_empties_what_it_keeps(call: str, where: Reset, tmp_path: Path) -> None:
    """A metric of torchmetrics has its states emptied by its base; that of another object's class empties nothing."""
    file = tmp_path / "case.py"
    file.write_text(RANKS.format(call=call))
    assert reset_of(str(file), 3, "Ranks.kept") is where
    assert (Bound.REBUILT in bounds_of(str(file), 3, "Ranks.kept")) is (where is Reset.ELSEWHERE)
    assert reset_of(str(file), 6, "Plain.kept") is Reset.NEVER


def test_an_attribute_that_a_method_begins_anew_is_emptied_elsewhere(tmp_path: Path) -> None:
    """An average meter's ``reset``; its constructor is none."""
    file = tmp_path / "case.py"
    meter = (
        "class Meter:\n    def __init__(self):\n        self.sum = 0\n    def update(self, x):\n        self.sum += x\n"
    )
    file.write_text(meter)
    assert reset_of(str(file), 5, "Meter.sum") is Reset.NEVER
    other = tmp_path / "other.py"
    other.write_text(f"{meter}    def reset(self):\n        self.sum = 0\n")
    assert reset_of(str(other), 5, "Meter.sum") is Reset.ELSEWHERE


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
