"""What statements store, and which give an attribute something new."""

from __future__ import annotations

from pathlib import Path

import pytest

from memguard.records.facts import Place
from memguard.source.remaking import remade_attribute
from memguard.source.stores import carries_itself, filled_at, passes_on
from tests.source import model_of

BEFORE = "def train(loader):\n    kept = {}\n    for epoch in range(2):\n        for batch in loader:\n            "


@pytest.mark.parametrize(
    ("statement", "filled"),
    [
        ("kept.append(batch)", True),
        ("kept.setdefault('a', []).append(batch)", True),
        ("kept['a'] = batch", True),
        ("kept['a'].append(batch)", True),
        ("kept += [batch]", True),
        ("kept = [batch]", False),
        ("kept = []; kept.append(batch)", False),
        ("other.append(kept)", False),
        ("kept.pop(0)", False),
        ("kept.get('a')", False),
    ],
)
def test_a_container_that_a_loop_fills_is_made_before_it_and_added_to_in_it(statement: str, filled: bool) -> None:
    """What is made anew in each round, or only read there, holds nothing of the rounds before."""
    model = model_of(BEFORE + statement)
    function = model.scopes[1]
    assert filled_at(model, function, "kept", 5) == (5 if filled else None)
    assert filled_at(model, function, "kept", 2) is None


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("traces.append(trace)", True),
        ("traces[name] = trace", True),
        ("log.update(loss=trace)", True),
        ("runs.append({'net': net, 'trace': trace})", True),
        ("self.trace, self.net = trace, net", True),
        ("runs += [trace]", True),
        ("traces.append(trace[-1])", False),
        ("traces.append(torch.stack(trace))", False),
        ("traces.append(other)", False),
        ("not python(", False),
    ],
)
def test_what_stores_a_told_variable_as_it_is_hands_it_on(source: str, expected: bool) -> None:
    """The variable itself, alone or in a tuple, list or dict; what is made of it is something new."""
    told = Place(file="run.py", line=5, function="main", holder="trace", source="trace.append(loss)")
    assert passes_on(Place(file="run.py", line=9, function="main", source=source), [told]) is expected


def test_a_variable_of_another_function_is_another_one() -> None:
    """Names count within one function of one file."""
    told = Place(file="run.py", line=5, function="main", holder="trace", source="trace.append(loss)")
    store = "traces.append(trace)"
    assert not passes_on(Place(file="run.py", line=9, function="other", source=store), [told])
    assert not passes_on(Place(file="else.py", line=9, function="main", source=store), [told])
    assert not passes_on(told, [told])


@pytest.mark.parametrize(
    ("statement", "carries"),
    [
        ("h = self.cell(x, h)", True),
        ("pred, h = net.step(x, h)  # both", True),
        ("h, c = cell(x), c", False),
        ("last = now", False),
        ("h = torch.cat([h[1:], x])", False),
    ],
)
def test_a_state_is_made_of_all_that_it_was(statement: str, carries: bool) -> None:
    """Also where a call returns it beside something else; a window of the newest values is none."""
    assert carries_itself(statement, "h") is carries


MADE = """class Ensemble:
    def __post_init__(self):
        self.Z = torch.zeros(8)

    def {first}(self):
        self.Z = torch.zeros(8)

    def close_epoch(self):
        self.Z = {value}
"""


@pytest.mark.parametrize(
    ("first", "value", "line"),
    [
        ("__init__", "torch.randn(8)", 9),  # what a constructor gives is the first
        ("reset", "0.6 * self.Z + 0.4 * said", 9),  # the old one is certainly there
        ("reset", "torch.randn(8)", 6),  # as likely as the other
    ],
)
def test_the_statement_that_meets_the_old_one_is_told(tmp_path: Path, first: str, value: str, line: int) -> None:
    """A constructor's never, and one that makes the new from the old before any other."""
    file = tmp_path / "ensemble.py"
    file.write_text(MADE.format(first=first, value=value))
    place = remade_attribute(str(file), "Ensemble", "Z")
    assert place is not None and place.line == line


def test_a_helper_s_variable_of_the_same_name_is_not_the_attribute(tmp_path: Path) -> None:
    """The statement that gives the attribute something new is told, not the one in the method that makes it."""
    file = tmp_path / "search.py"
    file.write_text(
        "class Search:\n"
        "    def make(self):\n"
        "        model = self.init()\n"
        "        return model\n"
        "    def train(self):\n"
        "        self.model = self.make()\n"
    )
    place = remade_attribute(str(file), "Search", "model")
    assert place is not None and (place.line, place.function) == (6, "Search.train")
