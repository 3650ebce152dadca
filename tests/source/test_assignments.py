"""What a variable is called that was given a name for being thrown away."""

from __future__ import annotations

import pytest

from memguard.detectors.lifetimes import LocalsAlive
from memguard.facts import LargeLocals
from memguard.source.assignments import spelled
from tests.detectors.evidence import AT, GIB, judge


@pytest.mark.parametrize(
    ("name", "source", "called"),
    [
        ("_", "loss, _ = model(ids, labels=ids)  # the logits", "model(...)[1]"),
        ("_", "_, _, out = self.net(x)", "self.net(...)[1]"),
        ("__", "[__, h] = rnn(x)", "rnn(...)[0]"),
        ("_", "loss, *_ = model(ids)", "_"),  # a list of them
        ("_", "for _ in range(3):", "_"),
        ("_", "_ = model(x)", "_"),
        ("_", None, "_"),
        ("out", "loss, out = model(ids)", "out"),
    ],
)
def test_what_is_thrown_away_is_called_by_where_it_came_from(name: str, source: str | None, called: str) -> None:
    """Nobody knows an underscore by its name; of several the last has the value."""
    assert spelled(name, source) == called


def test_the_advice_is_python() -> None:
    """It names the variable that there is."""
    (finding,) = judge(LocalsAlive(), LargeLocals(**AT, names=("model(...)[1]", "h"), bytes=2 * GIB))
    assert finding.advice.startswith("del _, h after") and "model(...)[1], h" in finding.message
