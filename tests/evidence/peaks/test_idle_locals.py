"""Variables that nothing reads any more at the peak: read from allocator events and the source."""

from __future__ import annotations

from pathlib import Path

import pytest

from memguard.integrations.script import run_script

HEAD = """
import torch
from torch import nn
net = nn.Linear(16, 16)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
kept = []
class Blocks(nn.Module):
    def forward(self, x):
        wide = x.repeat(1, 40)
        return x + wide.sum(), wide
blocks = Blocks()
def both(x):
    return x.mean(), x.repeat(1, 64)
def one_of_them_twice(x):
    return x, (x.repeat(1, 64), kept.append(x + 1))[0]
hidden, head = nn.Linear(16, 900), nn.Linear(900, 4)
def score(x):
    return head(hidden(x))
def best(x):
    return x.repeat(1, 64).topk(900, 1), x.size(0)
"""
FOOT = """
for step in range(24):
    loss = net(torch.ones(2, 16)).sum() * work(torch.ones(500, 16)).item()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
WIDE = "    wide = x.repeat(1, 64)\n"
NEXT = "    after = torch.zeros(500_000)\n    return small + after.sum()\n"

FAULTY = {
    "read once": WIDE + "    small = wide.mean()\n" + NEXT,
    "its shape is read": WIDE + "    small = wide.mean()\n    rows = len(x) + wide.shape[1]\n" + NEXT,
    "added to a number": WIDE + "    small = torch.zeros(())\n    small += wide.mean()\n" + NEXT,
    "a loop's variable": (
        "    small = 0\n    for turn in range(2):\n"
        "        wide = x.repeat(1, 48)\n        small = small + wide.mean()\n" + NEXT.replace("500_000", "1_000_000")
    ),
    "one of a tuple": "    y, wide = blocks(x)\n    small = y.mean()\n" + NEXT,
    "one of a tuple that is made as it is returned": "    y, wide = both(x)\n    small = y + wide.mean()\n" + NEXT,
}
HEALTHY = {
    "read at the peak": WIDE + "    return (wide + 1).sum()\n",
    "read after it": WIDE + "    small = torch.zeros(500_000).sum()\n    return small + wide.sum()\n",
    "deleted": WIDE + "    small = wide.mean()\n    del wide\n" + NEXT,
    "a part is read after it": WIDE
    + "    part = wide[:4]\n    small = torch.zeros(500_000).sum()\n    return small + part.sum()\n",
    "it may be the same tensor": (
        WIDE + "    out = nn.functional.dropout(wide, training=False)\n    small = torch.zeros(500_000).sum()\n"
        "    return small + out.sum()\n"
    ),
    "a list keeps it": (
        WIDE + "    parts = []\n    parts.append(wide)\n    small = torch.zeros(500_000).sum()\n"
        "    return parts[0].sum() + small\n"
    ),
    "something else keeps it": WIDE + "    kept[:] = [wide]\n    small = wide.mean()\n" + NEXT,
    "the other of a tuple": (
        "    y, wide = blocks(x)\n    after = torch.zeros(400_000)\n    return wide.sum() + after.sum() + y.sum()\n"
    ),
    "the other of a tuple that is made as it is returned": (
        "    y, wide = both(x)\n    after = torch.zeros(400_000)\n    return wide.sum() + after.sum() + y\n"
    ),
    "which of a tuple it is cannot be told": (
        "    y, wide = one_of_them_twice(x)\n    kept.clear()\n    small = y.mean()\n" + NEXT
    ),
    "one part of a tuple is a number, another two tensors": (
        "    most, rows = best(x)\n    after = torch.zeros(400_000)\n    return most[0].sum() + after.sum() + rows\n"
    ),
    "deleted, and the graph is held": (
        "    with torch.enable_grad():\n        y = score(x)\n        small = y.mean()\n        del y\n"
        "    after = torch.zeros(500_000)\n    return small.detach() + after.sum()\n"
    ),
    "small, and the graph behind it is held": (
        "    with torch.enable_grad():\n        y = score(x)\n        small = y.mean()\n"
        "    after = torch.zeros(500_000)\n    return small.detach() + after.sum()\n"
    ),
    "a gradient runs through its graph": (
        "    x = x.clone().requires_grad_()\n    with torch.enable_grad():\n        y = hidden(x).exp_()\n"
        "        small = y.mean()\n    return torch.autograd.grad(small, [x])[0].mean()\n"
    ),
    "little": "    wide = x.repeat(1, 4)\n    small = wide.mean()\n" + NEXT,
    "as much was there while it was read": (
        WIDE + "    double = wide.repeat(1, 2)\n    small = double.mean()\n    del double\n" + NEXT
    ),
}


def told(tmp_path: Path, text: str, codes: tuple[str, ...] = ("MG304",)) -> list[str | None]:
    script = tmp_path / "train.py"
    script.write_text(HEAD + "@torch.no_grad()\ndef work(x):\n" + text + FOOT)
    options = {"device": "virtual:32MiB", "logdir": str(tmp_path), "validation": "warn"}
    code, (summary,) = run_script(str(script), [], options, module=False)
    assert code == 0
    return [finding.holder for finding in summary.findings if finding.code in codes]


@pytest.mark.parametrize("case", FAULTY)
def test_a_variable_that_raises_the_peak_without_use_is_told(case: str, tmp_path: Path) -> None:
    """Whatever read it before; of one that is made again while it is alive MG305 has the one word."""
    assert told(tmp_path, FAULTY[case], ("MG304", "MG305")) == ["wide"]


@pytest.mark.parametrize("case", HEALTHY)
def test_what_is_needed_or_held_by_others_is_not_told(case: str, tmp_path: Path) -> None:
    """Read later under any name, held elsewhere, or no lower peak without it."""
    assert told(tmp_path, HEALTHY[case]) == []


LATER = """
import torch
from torch import nn
net, other = nn.Linear(16, 256).eval(), nn.Linear(16, 256).eval()
@torch.no_grad()
def compare(rows):
    x = torch.ones(rows, 16)
    scores = net(x)
    best = scores.max(1).values
    others = other(x)
    return (best - (others * 2).max(1).values).sum().item()
for turn in range(8):
    compare(8 if turn < 4 else 4000)
"""


def test_the_peak_of_an_evaluation_may_come_late(tmp_path: Path) -> None:
    """Its first batches tell little of it, and what is told says how high it was."""
    script = tmp_path / "compare.py"
    script.write_text(LATER)
    options = {"device": "virtual:64MiB", "logdir": str(tmp_path), "validation": "warn"}
    _, (summary,) = run_script(str(script), [], options, module=False)
    (found,) = (finding for finding in summary.findings if finding.code == "MG304")
    assert (found.holder, found.line) == ("scores", 8) and "of a peak of 12.1 MiB" in found.message
