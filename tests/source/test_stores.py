"""What statements store."""

from __future__ import annotations

import pytest

from memguard.records.facts import Place
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
