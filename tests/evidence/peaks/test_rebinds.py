"""A tensor made again while the old one is alive: read from allocator events."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from memguard.evidence.peaks import rebinds_in_history
from memguard.evidence.peaks.history import AllocationRecording
from memguard.evidence.peaks.rebinds_in_history import rebound
from memguard.integrations.script import run_script
from tests.evidence.timelines import timeline_of

MIB = 1024**2


@pytest.fixture(autouse=True)
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the events come from: a file of lines that make one and the same name again."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "program.py").write_text("field = field * 0.9\n" * 9)


def event(action: str, address: int, size: int, line: int = 1, below: str | None = None) -> dict[str, Any]:
    """One of a line of the program, or of a library's frame below it."""
    frames = [{"filename": str(Path("program.py").resolve()), "line": line, "name": "step"}]
    frames = [{"filename": below, "line": 5, "name": "inner"}, *frames] if below else frames
    return {"action": action, "addr": address, "size": size * MIB, "frames": frames}


def other(address: int) -> list[dict[str, Any]]:
    """Another line takes something small for a moment."""
    return [event("alloc", address, 1, line=9), event("free_requested", address, 1, line=9)]


def told(trace: list[dict[str, Any]], much: int = 0) -> list[tuple[int | None, str | None, int]]:
    """Line, name and MiB of what is made again."""
    found = rebound(timeline_of(trace), min_bytes=10 * MIB, much=much * MIB)
    return [(two.place.line, two.place.holder, two.bytes // MIB) for two in found]


def test_a_tensor_freed_by_its_successor_is_told() -> None:
    """The same line makes one of its size, and the old one goes at once, whatever intermediate goes between."""
    trace = [event("alloc", 1, 50), *other(7), event("alloc", 2, 50), event("alloc", 3, 50)]
    trace += [event("free_requested", 2, 50), event("free_requested", 1, 50)]
    assert told(trace) == [(1, "field", 50)]


SCRIPT = """
import torch
from torch import nn
policy = nn.Linear(512, 1)
optimizer = torch.optim.SGD(policy.parameters(), lr=0.1)
field = torch.zeros({elements})
for step in range(20):
    loss = policy(field[:512]).square().sum()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    {statement}
"""


@pytest.mark.parametrize(("size", "batch"), [("40MiB", 3), ("400MiB", None)])
def test_it_is_told_three_batches_after_the_first_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: str, batch: int | None
) -> None:
    """The optimizer's state is there by then; where memory is not tight yet, it is asked once more later."""
    monkeypatch.setattr(rebinds_in_history.AllocationRecording, "is_worth", _is_tight)
    script = tmp_path / "simulate.py"
    script.write_text(SCRIPT.format(elements=3_000_000, statement="field = field * 0.9"))
    options = {"device": f"virtual:{size}", "logdir": str(tmp_path), "validation": "warn"}
    _, (summary,) = run_script(str(script), [], options, module=False)
    assert [f.batch for f in summary.findings if f.code == "MG305"] == ([] if batch is None else [batch])


def _is_tight(recording: AllocationRecording, nbytes: int, share: float) -> bool:
    """As on a real device, where a history costs something."""
    return nbytes >= share * (recording._watch.device_total_bytes or 0)


EVALUATION = """
import torch
from torch import nn
segment = nn.Linear(64, 64).eval()
with torch.no_grad():
    for volume in range(6):
        canvas = torch.zeros(500_000)
        for window in range(12):
            canvas[:4096] += segment(torch.ones(64, 64)).flatten()
        print(canvas.sum().item())
"""


def test_a_canvas_made_once_in_many_windows_is_told(tmp_path: Path) -> None:
    """It is most of the evaluation's peak, though little of the device."""
    script = tmp_path / "segment.py"
    script.write_text(EVALUATION)
    options = {"device": "virtual:1GiB", "logdir": str(tmp_path), "validation": "warn"}
    _, (summary,) = run_script(str(script), [], options, module=False)
    assert [(f.holder, f.line) for f in summary.findings if f.code == "MG305"] == [("canvas", 7)]
