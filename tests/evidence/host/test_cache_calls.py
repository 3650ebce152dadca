"""Calls of empty_cache are counted, by whatever name the program knows the function."""

from __future__ import annotations

from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch

from memguard.evidence.host.cache_calls import hear_calls, stop_hearing_calls
from memguard.integrations.script import run_script

SCRIPT = """
import torch
from torch import nn
{imports}
model = nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(30):
    model(torch.randn(2, 4)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    {call}()
"""


@pytest.mark.parametrize(
    ("imports", "call"),
    [("", "torch.cuda.empty_cache"), ("from torch.cuda import empty_cache", "empty_cache")],
    ids=["by its module", "imported by name"],
)
@pytest.mark.parametrize("device", ["virtual:64MiB", "cpu"])
def test_calls_are_told_with_their_line(tmp_path: Path, imports: str, call: str, device: str) -> None:
    """Also where the program bound the name before its first batch; afterwards everything is as it was."""
    script, original = tmp_path / "train.py", torch.cuda.empty_cache
    script.write_text(SCRIPT.format(imports=imports, call=call))
    options = {"device": device, "logdir": str(tmp_path), "validation": "warn"}
    _, (summary,) = run_script(str(script), [], options, module=False)
    assert [finding.line for finding in summary.findings if finding.code == "MG403"] == [11]
    assert torch.cuda.empty_cache is original


ROLL_OUTS = """
import torch
from torch import nn
model = nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(60):
    with torch.no_grad():
        for _ in range(7):
            seen = model(torch.randn(2, 4))
    {early}
    model(torch.randn(2, 4)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    {late}
"""


@pytest.mark.parametrize(
    ("early", "late", "told"),
    [("", "if step % 2: torch.cuda.empty_cache()", [14]), ("if step % 2: torch.cuda.empty_cache()", "", [])],
    ids=["after a step", "after the roll-out"],
)
def test_calls_after_steps_are_counted_by_steps(tmp_path: Path, early: str, late: str, told: list[int]) -> None:
    """Roll-outs between the steps do not make them rare; after evaluation a call may have its reason."""
    script = tmp_path / "train.py"
    script.write_text(ROLL_OUTS.format(early=early, late=late))
    options = {"device": "virtual:64MiB", "logdir": str(tmp_path), "validation": "warn"}
    _, (summary,) = run_script(str(script), [], options, module=False)
    assert [finding.line for finding in summary.findings if finding.code == "MG403"] == told


def test_a_hearer_that_fails_hears_no_more() -> None:
    """The user's call goes through, and the originals come back with the last hearer."""
    original, calls = torch.cuda.empty_cache, []

    def fails(caller: FrameType | None, seconds: float) -> None:
        calls.append(seconds)
        raise RuntimeError("broken")

    hear_calls(fails)
    torch.cuda.empty_cache()
    torch.cuda.empty_cache()
    stop_hearing_calls(fails)
    assert len(calls) == 1
    assert torch.cuda.empty_cache is original


def test_an_interrupt_between_two_replacements_leaves_none_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who was interrupted on the way in has only to leave; twice is as good as once."""
    before = torch.cuda.empty_cache, torch.cuda.memory.empty_cache
    made: list[Any] = []

    def counted(original: Any) -> Any:
        if made:
            raise KeyboardInterrupt
        made.append(original)
        return lambda: original()

    monkeypatch.setattr("memguard.evidence.host.cache_calls._counted", counted)

    def hearer(caller: FrameType | None, seconds: float) -> None:
        """Hears nothing."""

    with pytest.raises(KeyboardInterrupt):
        hear_calls(hearer)
    assert torch.cuda.empty_cache is not before[0]
    stop_hearing_calls(hearer)
    stop_hearing_calls(hearer)
    assert (torch.cuda.empty_cache, torch.cuda.memory.empty_cache) == before
