"""What a function gives back while the last one is alive."""

from __future__ import annotations

from pathlib import Path

import pytest

from memguard.integrations.script import run_script

PROGRAM = """
import collections
import torch
from torch import nn


def wave(n, t):
    out = torch.empty(n)
    for part in range(4):
        angles = torch.linspace(0.0, t + 1.0, n // 4)
        out[part * (n // 4) : (part + 1) * (n // 4)] = angles
    return out


def through(n, t):
    return wave(n, t)


class Field:
    def __init__(self):
        self.grid = None
        self.last = None
        self.kept = {}
        self.queue = collections.deque(maxlen=2)
        self.net = nn.Linear(512, 1)

    def advanced(self, n, t):
        out = torch.empty(n)
        out[: n // 2] = float(t) if self.grid is None else self.grid[: n // 2]
        return out

    def drift(self, now):
        return 0.0 if self.last is None else (now[:4] - self.last[:4]).sum().item()

    def soft(self, n, t):
        with torch.no_grad():
            d = torch.full((n,), float(t))
            return d.mul_(2).exp_()

    def loss(self, rows):
        return self.net(rows[:512]).square().sum()

    def step(self, t):
        {step}


def main():
    field, old = Field(), None
    optimizer = torch.optim.SGD(field.net.parameters(), lr=0.001)
    for t in range(24):
        {before}
        loss = field.step(t)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


main()
"""
N = 3_000_000


def told(tmp_path: Path, step: str, before: str = "pass") -> list[tuple[str, str | None]]:
    """Rules and holders that a program's run ends with."""
    script = tmp_path / "field.py"
    step, before = (text.replace("; ", "\n        ") for text in (step, before))
    text = PROGRAM.replace("{step}", step).replace("{before}", before)
    script.write_text(text)
    options = {"device": "virtual:1GiB", "logdir": str(tmp_path), "validation": "warn"}
    code, (summary,) = run_script(str(script), [], options, module=False)
    assert code == 0
    return [(f.code, f.holder) for f in summary.findings if f.code in ("MG303", "MG305")]


@pytest.mark.parametrize(
    ("step", "before", "holder"),
    [
        (f"self.grid = wave({N}, t); return self.loss(self.grid)", "pass", "self.grid"),
        (f"self.grid = through({N}, t); return self.loss(self.grid)", "pass", "self.grid"),
        (f"self.grid = self.soft({N}, t); return self.loss(self.grid)", "pass", "self.grid"),
        ("return self.loss(torch.ones(512))", f"old = wave({N}, t)", "old"),
    ],
    ids=["attribute", "two functions", "method", "variable"],
)
def test_what_a_call_makes_anew_is_told_where_it_is_named(tmp_path: Path, step: str, before: str, holder: str) -> None:
    """Not at the line of the function that makes it, and whatever else that function makes."""
    assert told(tmp_path, step, before) == [("MG305", holder)]


@pytest.mark.parametrize(
    ("step", "before"),
    [
        (f"self.grid = None; self.grid = wave({N}, t); return self.loss(self.grid)", "pass"),
        (f"self.grid = self.advanced({N}, t); return self.loss(self.grid)", "pass"),
        (f"self.grid = wave({N}, t); return self.loss(torch.ones({2 * N}))", "pass"),
        (f"grid = wave({N}, t); return self.loss(grid)", "pass"),
        ("return self.loss(torch.ones(512))", f"old = wave({N}, t); del old"),
        ("return self.loss(torch.ones(512))", f"old = wave({N}, t); field.queue.append(old)"),
    ],
    ids=[
        "dropped before",
        "wanted by the call",
        "the peak is elsewhere",
        "goes with the function",
        "deleted",
        "a queue",
    ],
)
def test_a_call_that_finds_none_or_needs_the_old_one_is_not_told(tmp_path: Path, step: str, before: str) -> None:
    """Nor one that leaves the peak as it is."""
    assert told(tmp_path, step, before) == []
