"""Where the source empties what a statement fills, from the syntax tree alone."""

from pathlib import Path

import pytest

from memguard.source.bounds import Bound, bounds_of
from memguard.source.resets import Reset, reset_of

LOOPS = {
    "for step in data:\n    log.append(x)": Reset.NEVER,
    "for step in data:\n    log.append(x)\n    if step % 9 == 0:\n        log = []": Reset.HERE,
    "for step in data:\n    log.append(x)\n    if len(log) > 4:\n        log.pop(0)": Reset.HERE,
    "for step in data:\n    log.append(x)\n    log = log[-4:]": Reset.HERE,
    "for step in data:\n    log.append(x)\n    if step % 9 == 0:\n        log.clear()": Reset.HERE,
    "log, other = deque(maxlen=9), []\nfor step in data:\n    log.append(x)": Reset.HERE,
    "for epoch in runs:\n    log = []\n    for step in data:\n        log.append(x)": Reset.ELSEWHERE,
    "for epoch in runs:\n    for step in data:\n        log.append(x)\n    log.clear()": Reset.ELSEWHERE,
    "for step in range(9):\n    log[step] = x": Reset.NEVER,
    "for step in range(9):\n    log[f'step {step}'] = x": Reset.NEVER,
    "for step in range(9):\n    log[step % 4] = x": Reset.HERE,
    "for epoch in runs:\n    for step in range(9):\n        log[step] = x": Reset.HERE,
    "for step in data:\n    log['loss'] = log['loss'] + x  # += x": Reset.NEVER,
    "for name in names:\n    log[name] = x": Reset.HERE,
    "for step in data:\n    log += x\n    log = log.detach()": Reset.HERE,
    "for step in data:\n    n += 1\n    log[n] = x": Reset.NEVER,
    "for epoch in runs:\n    n = 0\n    for step in data:\n        n += 1\n        log[n] = x": Reset.HERE,
    "for step in data:\n    log += x\n    shown.append(log.detach())": Reset.NEVER,
    "def put(store, x):\n    store.append(x)\n    if len(store) > 4:\n        store.pop(0)": Reset.HERE,
}
EPOCHS = "for epoch in runs:\n    for step in data:\n        log['x'].append(x)\n    "
ALIASES = {
    "for part in log.values():\n        part.clear()": Reset.ELSEWHERE,
    "for key, part in list(log.items()):\n        part.clear()": Reset.ELSEWHERE,
    "part = log['x']\n    part.clear()": Reset.ELSEWHERE,
    "part = list(log['x'])\n    part.clear()": Reset.NEVER,
    "for part in log['x']:\n        part.pop('image', None)": Reset.NEVER,
}
"""What empties the container, or its elements, by a variable; and what empties a copy, or takes a field of a record."""
LOOPS |= {f"{EPOCHS}{text}": where for text, where in ALIASES.items()}


@pytest.mark.parametrize("text", LOOPS)
def test_a_window_is_told_from_an_epoch_and_from_what_only_grows(text: str, tmp_path: Path) -> None:
    """By what stands in the loop that fills it, in those around it, and by keys that come again."""
    file = tmp_path / "case.py"
    file.write_text(f"log = []\n{text}\n")
    lines = file.read_text().splitlines()
    line = next(n for n, one in enumerate(lines, 1) if ".append(x)" in one or "] = x" in one or "+= x" in one)
    assert reset_of(str(file), line, "log") is LOOPS[text]


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


def test_a_variable_that_is_called_like_an_attribute_does_not_begin_it_anew(tmp_path: Path) -> None:
    """``out, state = net(x, self.state)`` in the loop that carries it."""
    file = tmp_path / "case.py"
    file.write_text(
        "class Actor:\n    def run(self, data):\n        for x in data:\n"
        "            out, state = self.net(x, self.state)\n            self.state = state * self.state.mean()\n"
    )
    assert reset_of(str(file), 5, "Actor.state") is Reset.NEVER


@pytest.mark.parametrize(
    ("stored", "where"),
    [
        ("self.seen, self.state = x, new", Reset.NEVER),
        ("self.state = (new, x)", Reset.NEVER),
        ("self.state = self.net.cut(new)", Reset.HERE),
        ("self.state = new if x is None else old.detach()", Reset.HERE),
        ("new = new.detach()\n            self.state = new", Reset.HERE),
        ("self.state = new\n            self.state = None", Reset.HERE),
    ],
)
def test_a_state_that_is_known_to_be_carried_is_not_begun_anew_by_that(
    stored: str, where: Reset, tmp_path: Path
) -> None:
    """Where the statement hands on what a variable has; what is called, or cut before, may be something else."""
    file = tmp_path / "case.py"
    file.write_text(
        "class Actor:\n    def run(self, data):\n        for x in data:\n"
        f"            new = self.net(x, self.state)\n            {stored}\n"
    )
    line = next(n for n, text in enumerate(file.read_text().splitlines(), 1) if "self.state = " in text)
    assert reset_of(str(file), line, "Actor.state", carries=True) is where
    assert reset_of(str(file), line, "Actor.state") is Reset.HERE


@pytest.mark.parametrize(
    ("limit", "where"),
    [
        ("if len(self.pool) > 50:\n            self.pool.pop(0)", Reset.NEVER),
        ("if len(self.pool) < 50:\n            pass\n        else:\n            self.pool.pop(0)", Reset.NEVER),
        ("if step % 6 == 0:\n            self.pool.clear()", Reset.ELSEWHERE),
        ("self.pool.pop(0)", Reset.HERE),
    ],
)
def test_a_limit_of_its_length_may_be_left_out(limit: str, where: Reset, tmp_path: Path) -> None:
    """Where it is known to be far away; what empties it otherwise still counts."""
    file = tmp_path / "case.py"
    file.write_text(
        "class Pool:\n    def __init__(self):\n        self.pool = []\n    def query(self, x, step):\n"
        f"        self.pool.append(x)\n        {limit}\n"
    )
    assert reset_of(str(file), 5, "Pool.pool", by_length=False) is where
