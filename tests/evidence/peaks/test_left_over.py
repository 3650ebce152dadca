"""What lies there from the batch before at a batch's peak, though no output of a model leads to it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from memguard.evidence.peaks.previous_batch import left_over
from memguard.integrations.script import run_script
from memguard.records.facts import Place
from memguard.records.findings import Severity
from memguard.source.reads import is_wanted
from tests.evidence.timelines import timeline_of

MIB = 1024**2
HERE = str(Path(__file__))


class Trace:
    """Events of batches, each a second long."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.batch, self.addresses = 0, 0

    def alloc(self, size: int, line: int) -> int:
        self.addresses += 1
        self._hear("alloc", self.addresses, size, line)
        return self.addresses

    def free(self, address: int, size: int) -> None:
        self._hear("free_requested", address, size, 0)

    def _hear(self, action: str, address: int, size: int, line: int) -> None:
        frames = [{"filename": HERE, "line": line, "name": "step"}]
        time_us = self.batch * 1_000_000 + 1 + len(self.events)
        self.events.append(
            {"action": action, "addr": address, "size": size * MIB, "frames": frames, "time_us": time_us}
        )

    @property
    def ends(self) -> list[int]:
        return [number * 1_000_000 for number in range(self.batch + 1)]


def batches(*, kept: int, replaced_before_peak: bool = False, loaded_ahead: bool = False) -> Trace:
    """Three batches, each with maps that one line makes; an activation makes the peak."""
    trace = Trace()
    last: list[int] = []
    for _ in range(3):
        maps = [] if loaded_ahead else [trace.alloc(10, line=1) for _ in range(kept)]
        if replaced_before_peak:
            for address in last:
                trace.free(address, 10)
        activation = trace.alloc(100, line=2)
        trace.free(activation, 100)
        maps += [trace.alloc(10, line=1) for _ in range(kept)] if loaded_ahead else []
        if not replaced_before_peak:
            for address in last:
                trace.free(address, 10)
        last = maps
        trace.batch += 1
    return trace


def test_what_was_made_before_the_last_peak_and_goes_after_this_one_is_left_over() -> None:
    """Its line makes others anew before it goes."""
    trace = batches(kept=3)
    found = left_over(timeline_of(trace.events), trace.ends, min_bytes=20 * MIB)
    assert found is not None
    assert (found.bytes, found.sizes, found.functions) == (30 * MIB, {10 * MIB}, {(HERE, "step")})
    assert left_over(timeline_of(trace.events), trace.ends, min_bytes=40 * MIB) is None


def test_what_goes_before_the_peak_or_is_loaded_ahead_is_not() -> None:
    """The one adds nothing to the peak; the other was made for the batch in which it is there."""
    for trace in (batches(kept=3, replaced_before_peak=True), batches(kept=3, loaded_ahead=True)):
        assert left_over(timeline_of(trace.events), trace.ends, min_bytes=20 * MIB) is None
    trace = batches(kept=3)
    assert left_over(timeline_of([]), trace.ends, min_bytes=MIB) is None
    assert left_over(timeline_of(trace.events), [], min_bytes=MIB) is None
    assert left_over(timeline_of(trace.events), trace.ends[:2], min_bytes=MIB) is None


SOURCE = """
class Net:
    def forward(self, x):
        {before}
        self.maps = x
        {after}
"""


@pytest.mark.parametrize(
    ("before", "after", "wanted"),
    [
        ("pass", "print(self.maps)", False),
        ("x = x + self.maps", "pass", True),
        ("self.maps = []", "pass", False),
        ("self.maps[0] = x", "pass", False),
        ("self.maps.clear()", "pass", False),
    ],
)
def test_what_a_function_reads_before_it_is_set_anew_is_wanted(
    tmp_path: Path, before: str, after: str, wanted: bool
) -> None:
    """To put something into a container reads none of what lies there."""
    script = tmp_path / "net.py"
    script.write_text(SOURCE.format(before=before, after=after))
    place = Place(file=str(script), line=5, function="Net.forward", holder="Net.maps")
    assert is_wanted([(str(script), "forward")], place) is wanted
    assert not is_wanted([(str(script), "backward")], place)


SCRIPT = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.out = nn.Linear(16, 16), nn.Linear(16, 1)
        self.maps = None

    def attend(self, x):
        return (self.query(x) @ x.transpose(1, 2)).softmax(-1)

    def forward(self, x):
        {before}
        maps = []
        for _ in range(3):
            weights = self.attend(x)
            x = weights @ x
            maps.append(weights.detach())
        self.maps = maps
        return self.out(x)

model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

def step():
    loss = model(torch.randn(4, 256, 16)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    {after}

for _ in range(24):
    step()
"""


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("pass", "pass", ["Net.maps"]),
        ("pass", "model.maps = None", []),
        ("x = x + (self.maps[0] @ x if self.maps else 0)", "pass", []),
        ("self.maps = None", "pass", []),
    ],
    ids=["kept", "dropped", "read", "dropped at the beginning"],
)
def test_a_program_that_keeps_what_its_model_made_inside(
    tmp_path: Path, before: str, after: str, told: list[str]
) -> None:
    """The attribute that nothing reads in the next batch before it is set anew."""
    script = tmp_path / "maps.py"
    script.write_text(SCRIPT.format(before=before, after=after))
    options = {"device": "virtual:1GiB", "logdir": str(tmp_path), "validation": "warn"}
    _, (summary,) = run_script(str(script), [], options, module=False)
    found = [finding for finding in summary.findings if finding.code == "MG303"]
    assert [finding.holder for finding in found] == told
    assert all((finding.severity, finding.line) == (Severity.INFO, 21) for finding in found)


BARE = """
import torch

def render(grid, at):
    shown = {{"rgb": (grid[at] * 0.5).sum(1)}}
    with torch.no_grad():
        shown["code"] = torch.sin(grid[at].repeat(1, 4))
        shown["far"] = torch.cos(grid[at].flip(1).repeat(1, 4))
    return shown

def train():
    grid = torch.zeros(4096, 32, requires_grad=True)
    optimizer = torch.optim.SGD([grid], lr=0.1)
    shown = seen = None
    for turn in range(24):
        at = torch.randint(4096, (8192,))
        {before}
        shown = render(grid, at)
        loss = shown["rgb"].square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if turn % 10 == 0:
            print(shown["code"].mean().item())
        {after}
    {end}

train()
"""


@pytest.mark.parametrize(
    ("before", "after", "end", "told"),
    [
        ("pass", "pass", "pass", ["shown"]),
        ("pass", "del shown", "pass", []),
        ("seen = shown and shown['far'].mean().item()", "pass", "pass", []),
        ("pass", "pass", "print(shown['far'].mean())", []),
        ("pass", "seen = shown", "print(seen['far'].mean())", []),
    ],
    ids=["kept", "dropped", "read before", "read at the end", "kept for the end"],
)
def test_a_loop_without_a_model_that_keeps_its_last_answer(
    tmp_path: Path, before: str, after: str, end: str, told: list[str]
) -> None:
    """Its variable is told where nothing reads it before it is set anew, nor after the loop."""
    script = tmp_path / "bare.py"
    script.write_text(BARE.format(before=before, after=after, end=end))
    options = {"device": "virtual:1GiB", "logdir": str(tmp_path), "validation": "warn"}
    _, (summary,) = run_script(str(script), [], options, module=False)
    found = [finding for finding in summary.findings if finding.code == "MG303"]
    assert [(finding.holder, finding.line, finding.severity) for finding in found] == [
        (name, 18, Severity.INFO) for name in told
    ]
