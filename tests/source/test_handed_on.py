"""Statements that only put away what another one filled."""

from pathlib import Path

import pytest

from memguard.facts import Place
from memguard.source.handed_on import hands_on

FIT = """
def fit(net):
    trace = []
    for step in range(3):
        trace.append(net(step))
    return net, trace

def score(net):
    trace = []
    for step in range(3):
        trace.append(net(step))
    return len(trace)
"""


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
    assert hands_on(Place(file="run.py", line=9, function="main", source=source), [told]) is expected


def test_a_variable_of_another_function_is_another_one() -> None:
    """Names count within one function of one file."""
    told = Place(file="run.py", line=5, function="main", holder="trace", source="trace.append(loss)")
    store = "traces.append(trace)"
    assert not hands_on(Place(file="run.py", line=9, function="other", source=store), [told])
    assert not hands_on(Place(file="else.py", line=9, function="main", source=store), [told])
    assert not hands_on(told, [told])


@pytest.mark.parametrize(("function", "expected"), [("fit", True), ("score", False)])
def test_what_a_function_gives_back_is_handed_on(function: str, expected: bool, tmp_path: Path) -> None:
    """Only if it returns the variable that was told of."""
    path = tmp_path / "run.py"
    path.write_text(FIT)
    told = Place(file=str(path), line=5, function=function, holder="trace", source="trace.append(net(step))")
    place = Place(file=str(path), line=20, function="main", source=f"runs.append({function}(net))")
    assert hands_on(place, [told]) is expected
