"""Lets looks and batches take the same time in every run, so that what is looked at does not depend on the machine."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from memguard.probes.pace import Pace
from memguard.stats import Stage

LOOK_SECONDS = 0.002
"""What memguard takes of a batch that it looks at: 1.5 to 4 ms in most programs of the corpus."""
BATCH_SECONDS = 0.01
"""What a batch of such a program takes."""


@contextlib.contextmanager
def fixed_costs(times: float = 1.0) -> Iterator[None]:
    """Within it, each batch that is looked at costs the same, and time goes by with the batches alone.

    Args:
        times: Looks cost so many times what they do: a fast loop on a slow machine, looked at rarely.
    """
    init, looks, pass_by, spend, looked = Pace.__init__, Pace.looks, Pace.pass_by, Pace.spend, Pace.looked
    now = 0.0

    def counted(pace: Pace, stage: Stage, **why: Any) -> bool:
        nonlocal now
        now += BATCH_SECONDS
        return looks(pace, stage, **why)

    def passed_by(pace: Pace, stage: Stage, batches: int) -> None:
        nonlocal now
        now += BATCH_SECONDS * batches
        pass_by(pace, stage, batches)

    def charged(pace: Pace) -> None:
        spend(pace, LOOK_SECONDS * times)
        looked(pace)

    replaced = {
        "__init__": lambda pace: init(pace, lambda: now),
        "looks": counted,
        "pass_by": passed_by,
        "spend": lambda pace, seconds: None,
        "looked": charged,
    }
    original = {"__init__": init, "looks": looks, "pass_by": pass_by, "spend": spend, "looked": looked}
    try:
        for name, function in replaced.items():
            setattr(Pace, name, function)
        yield
    finally:
        for name, function in original.items():
            setattr(Pace, name, function)
