"""Runs one of the programs until it fails, judges the report, and runs it again as its first advice says."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import pytest
import torch

import memguard
from memguard.integrations.guard import Guard
from tests.postmortem.unseen import errors, evaluations, leaks, models, outliers, pieces, sizes, states
from tests.postmortem.unseen.cases import Case

CASES = {
    **sizes.CASES,
    **leaks.CASES,
    **pieces.CASES,
    **outliers.CASES,
    **evaluations.CASES,
    **states.CASES,
    **models.CASES,
    **errors.CASES,
}


def try_out(case: Case, logdir: Path, device: str = "cpu", scale: int = 1) -> None:
    """Asserts that the cause is right, the owners add up, and the first advice cures.

    Args:
        case: The program.
        logdir: Where recordings go.
        device: Where its tensors are; "cpu" is guarded as a virtual GPU.
        scale: Of the sizes.
    """
    told = fail(case, logdir / "as it is", device, scale)
    assert told["cause_kind"] in case.causes, told["cause"]
    allocated = told["request"]["allocated_bytes"]
    assert abs(sum(told["owners"].values()) - allocated) <= 0.01 * allocated
    first = told["advice"][0]
    fix = case.read(first)
    assert fix, first["text"]
    if "fragmentation" in case.causes:  # an environment variable; the replay is the proof
        assert [replayed["fits"] for replayed in told["replay"]] == [True]
        return
    with _guard(case, logdir / "as advised", device, scale) as guard:
        case.run(guard, device, fix, scale)


def fail(case: Case, logdir: Path, device: str, scale: int) -> dict[str, Any]:
    """Runs it as it is; the post-mortem."""
    guard = _guard(case, logdir, device, scale)
    with pytest.raises((torch.OutOfMemoryError, RuntimeError)), guard:
        case.run(guard, device, None, scale)
    told = guard.result().oom
    assert told is not None
    return told


def _guard(case: Case, logdir: Path, device: str, scale: int) -> Guard:
    gc.collect()  # errors that were kept hang in cycles
    total = int(case.total.removesuffix("MiB")) * scale << 20
    if device == "cpu":
        device = f"virtual:{total}"
    else:
        torch.cuda.empty_cache()
        torch.cuda.set_per_process_memory_fraction(total / torch.cuda.get_device_properties(0).total_memory)
    return memguard.watch(device=device, logdir=str(logdir), quiet=True, validation="warn")
