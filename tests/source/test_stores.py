"""What statements store."""

from __future__ import annotations

from pathlib import Path

import pytest

from memguard.records.facts import Place
from memguard.source.stores import carries_itself, filled_at, keeper_of, own_keeper, passes_on
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
    assert passes_on(Place(file="run.py", line=9, function="main", source=source), [told]) is expected


def test_a_variable_of_another_function_is_another_one() -> None:
    """Names count within one function of one file."""
    told = Place(file="run.py", line=5, function="main", holder="trace", source="trace.append(loss)")
    store = "traces.append(trace)"
    assert not passes_on(Place(file="run.py", line=9, function="other", source=store), [told])
    assert not passes_on(Place(file="else.py", line=9, function="main", source=store), [told])
    assert not passes_on(told, [told])


@pytest.mark.parametrize(
    ("keeps", "holder"),
    [
        ("self.last = out.detach()", "Net.last"),
        ("self.last = out", "Net.last"),
        ("self.last = out.data.detach().view(-1)", "Net.last"),
        ("self.last = out.detach().cpu()", None),
        ("self.last = out.detach().clone()", None),
        ("self.last = out[:8]", None),
        ("drift = out - self.last; self.last = out", None),
        ("last = out.detach()", None),
        ("other.last = out.detach()", None),
    ],
)
def test_a_view_that_is_kept_keeps_the_tensor(tmp_path: Path, keeps: str, holder: str | None) -> None:
    """As the method's own attribute; a copy or another variable does not, nor what the method reads itself."""
    file = tmp_path / "net.py"
    file.write_text(
        f"class Net:\n    def step(self, x):\n        out = x * 2\n        {keeps}\n        return out.sum()\n"
    )
    found = keeper_of(str(file), 3, "out")
    assert (found.holder if found else None) == holder
    assert found is None or (found.line, found.function) == (4, "Net.step")


def test_a_loop_of_the_method_keeps_it_by_itself(tmp_path: Path) -> None:
    """The variable still has the last turn's."""
    file = tmp_path / "net.py"
    file.write_text("class Net:\n  def fit(self, xs):\n    for x in xs:\n      out = x * 2\n      self.last = out\n")
    assert keeper_of(str(file), 4, "out") is None


@pytest.mark.parametrize(
    ("body", "holder"),
    [
        ("self.last = self.net(x).softmax(1)", "Net.last"),
        ("y = self.last; self.last = self.net(x)", None),
        ("self.last = self.blend(x)", None),
        ("last = self.net(x)", None),
    ],
)
def test_an_attribute_keeps_what_its_own_line_makes(tmp_path: Path, body: str, holder: str | None) -> None:
    """Unless the method, or one that it calls, reads what the last call left there."""
    file = tmp_path / "net.py"
    file.write_text(
        f"class Net:\n    def step(self, x):\n        {body}\n    def blend(self, x):\n        return x + self.last\n"
    )
    name = "self.last" if "self.last" in body else "last"
    found = own_keeper(str(file), 3, name)
    assert (found.holder if found else None) == holder
    assert found is None or (found.line, found.function) == (3, "Net.step")


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
