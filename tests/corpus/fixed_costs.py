"""Lets looks and batches take the same time in every run, so that what is looked at does not depend on the machine."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from memguard.evidence.sampling_budget import SamplingBudget
from memguard.recorder import Recorder

LOOK_SECONDS = 0.002
"""What memguard takes of a batch that it looks at: 1.5 to 4 ms in most programs of the corpus."""
BATCH_SECONDS = 0.01
"""What a batch of such a program takes."""
_BEGIN = 1.7e9


@contextlib.contextmanager
def fixed_costs(times: float = 1.0) -> Iterator[None]:
    """Within it, each batch that is looked at costs the same, and time goes by with the recorder's readings of it alone.

    Args:
        times: Looks cost so many times what they do: a fast loop on a slow machine, looked at rarely.
    """
    original = [
        (Recorder, "__init__"),
        (SamplingBudget, "__init__"),
        (SamplingBudget, "spend"),
        (SamplingBudget, "looked"),
    ]
    made, paced, spend, looked = (getattr(kind, name) for kind, name in original)
    now = _BEGIN

    def clock() -> float:
        nonlocal now
        now += BATCH_SECONDS  # it is read once as a batch ends
        return now

    def charged(pace: SamplingBudget) -> None:
        spend(pace, LOOK_SECONDS * times)
        looked(pace)

    def init(recorder: Recorder, *args: Any, **options: Any) -> None:
        made(recorder, *args, **{**options, "clock": clock})

    replaced = (init, lambda pace: paced(pace, lambda: now), lambda pace, seconds: None, charged)
    try:
        for (kind, name), function in zip(original, replaced, strict=True):
            setattr(kind, name, function)
        yield
    finally:
        for (kind, name), function in zip(original, (made, paced, spend, looked), strict=True):
            setattr(kind, name, function)
