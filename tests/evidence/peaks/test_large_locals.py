"""Large local tensors of functions, and whether they are read again."""

import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from memguard.evidence.peaks.locals import LargeLocal, find_large_locals
from memguard.source.model import Sources
from memguard.source.reads import is_read_again

MIB = 1 << 20


def test_storages_of_the_model_are_left_out() -> None:
    """A local that is a weight is no find."""
    found: list[LargeLocal] = []

    def step() -> None:
        weight = torch.zeros(MIB)
        own = weight.untyped_storage()._cdata
        found.extend(find_large_locals(MIB, ignore=lambda key: key == own))

    step()
    assert found == []


def test_host_memory_may_be_left_out() -> None:
    """Where a device is watched, it is none of its peak."""
    large = torch.zeros(MIB)
    assert [local.name for local in find_large_locals(MIB)] == ["large"]
    assert find_large_locals(MIB, on_host=False) == ()
    del large


def test_what_a_branch_sets_now_and_then_is_not_the_last_turns() -> None:
    """It is as old as the last time that the branch was gone into."""
    found: list[LargeLocal] = []

    def loop() -> None:
        for turn in range(3):
            if turn == 2:
                found.extend(find_large_locals(MIB))
            if not turn:
                shown = torch.zeros(MIB)
                shown.sum()

    loop()
    assert [(local.name, local.last_turns, local.read_again) for local in found] == [("shown", False, False)]


CASES = {
    "read later": ("def f(m):\n    x = m()\n    here()\n    return x\n", True),
    "never read": ("def f(m):\n    x = m()\n    here()\n    return 1\n", False),
    "set anew first": ("def f(m):\n    x = m()\n    here()\n    x = m()\n    return x\n", False),
    "set anew in a branch": ("def f(m):\n    x = m()\n    here()\n    if m:\n        x = 1\n    return x\n", True),
    "next turn sets it": ("def f(m):\n    for b in m:\n        x = m(b)\n        x.sum()\n        here()\n", False),
    "next turn reads it": ("def f(m):\n    x = 0\n    for b in m:\n        x = x + b\n        here()\n", True),
    "augmented": ("def f(m):\n    x = 0\n    for b in m:\n        here()\n        x += b\n", True),
    "loop's own variable": ("def f(m):\n    for x in m:\n        x.sum()\n        here()\n", False),
    "closure": ("def f(m):\n    x = m()\n    def g():\n        return x\n    here()\n    g()\n", True),
    "deleted": ("def f(m):\n    x = m()\n    here()\n    del x\n", False),
    "set and read in a branch": (
        "def f(m):\n    for b in m:\n        here()\n        if b:\n            x = m(b)\n            x.sum()\n",
        False,
    ),
    "set in a block of a branch, read below": (
        "def f(m):\n    for b in m:\n        here()\n        if b:\n            with m:\n                x = m(b)\n"
        "            x.sum()\n",
        False,
    ),
    "set in a branch, read in another": (
        "def f(m):\n    for b in m:\n        here()\n        if b:\n            x = m(b)\n        if m:\n"
        "            x.sum()\n",
        True,
    ),
    "set in a branch above, read in each turn": (
        "def f(m):\n    for b in m:\n        if b:\n            x = m(b)\n        x.sum()\n        here()\n",
        True,
    ),
    "branch reads the last one": (
        "def f(m):\n    for b in m:\n        here()\n        if b:\n            x = m(\n                x)\n",
        True,
    ),
    "read in the condition": ("def f(m):\n    x = 1\n    while x:\n        here()\n        x = m()\n", True),
}


@pytest.mark.parametrize("case", CASES)
def test_reads_after_a_line(case: str, tmp_path: Path) -> None:
    """What the rest of the function, or the loop's next turn, does first with the variable decides."""
    text, expected = CASES[case]
    path = tmp_path / "case.py"
    path.write_text(textwrap.dedent(text))
    line = 1 + next(index for index, each in enumerate(text.splitlines()) if "here()" in each)
    assert is_read_again(Sources().get(str(path)), 1, "f", "x", line) is expected


SCRIPTS = {
    "never read": ("x = m()\nhere()\n", False),
    "read later": ("x = m()\nhere()\nprint(x)\n", True),
    "a function reads it": ("def f():\n    return x\nx = m()\nhere()\n", True),
    "a function has its own": ("def f(x):\n    return x\nx = m()\nhere()\n", False),
    "a function sets its own": ("def f():\n    x = 1\n    return x\nx = m()\nhere()\n", False),
    "a function sets the script's": ("def f():\n    global x\n    x += 1\nx = m()\nhere()\n", True),
    "one inside a function has its own": (
        "def f():\n    def g():\n        x = 1\n        return x\n    return x\nx = m()\nhere()\n",
        True,
    ),
    "a default reads it": ("here()\ndef f(x=x):\n    return x\n", True),
    "by name": ("x = m()\nhere()\nprint(globals()['x'])\n", None),
}


@pytest.mark.parametrize("case", SCRIPTS)
def test_reads_of_a_scripts_variable(case: str, tmp_path: Path) -> None:
    """A script's own functions may read its variables at any time, unless the name is one of their own."""
    text, expected = SCRIPTS[case]
    path = tmp_path / "case.py"
    path.write_text(text)
    line = 1 + next(index for index, each in enumerate(text.splitlines()) if "here()" in each)
    assert is_read_again(Sources().get(str(path)), 1, "<module>", "x", line) is expected


def test_unknown_source_is_unknown() -> None:
    """Without a source nothing is claimed."""
    assert is_read_again(Sources().get(None), 1, "f", "x", 2) is None


def test_what_was_made_before_the_loop_may_be_anothers() -> None:
    """A generator that the loop goes through holds it as well; what a turn makes is its own."""
    found: list[LargeLocal] = []

    def turns(data: torch.Tensor) -> Iterator[int]:
        for _ in range(2):
            yield int(data.numel())

    def loop() -> None:
        data = torch.zeros(MIB)
        for _ in turns(data):
            own = torch.zeros(MIB)
            own.sum()
            found.extend(find_large_locals(MIB))

    loop()
    assert {local.name: local.shared for local in found} == {"data": True, "own": False}


def held(value: object, *, known: bool) -> dict[str, int]:
    """What is found of a variable's value, as a model's answer or not."""
    found: list[LargeLocal] = []
    answers = {(id(value), id(type(value)))} if known else set()

    def step() -> None:
        out = value
        found.extend(find_large_locals(MIB, answers=answers))
        del out

    step()
    return {local.name: local.bytes for local in found}


def test_what_a_model_gave_without_a_graph_counts_as_its_variables() -> None:
    """All of its tensors together, each once; of other lists nobody knows who made them."""
    one, two = torch.zeros(MIB // 8), torch.zeros(MIB // 16 * 3)
    assert held({"z": one, "states": [two, two.view(2, -1)]}, known=True) == {"out": MIB // 4 * 5}
    assert held([one, two], known=False) == {}
    assert held([one], known=True) == {}


def test_an_answer_with_a_graph_is_the_backwards() -> None:
    """To drop the variable gains nothing before that."""
    assert held([torch.zeros(MIB), torch.zeros(MIB, requires_grad=True) * 2], known=True) == {}
    assert held([torch.zeros(MIB), torch.zeros(MIB) * 2], known=True) == {"out": 8 * MIB}
