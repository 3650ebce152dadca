"""What watching a plain loop costs a batch: ``python -m tests.bench plain_loop``.

Two runs of the same loop differ by more than memguard costs: by where memory lies, by the clock of the processor, by
what else the machine does. So each variant is one run, in which the hooks are taken out every `SPAN` batches and put
back after as many, and a cost is the mean difference of neighbouring spans, in processor time of the whole process.
How exact this is the loop without any hooks tells, treated likewise.

What comes once is told by `startup`, and what the slow lane takes in the long run by `long_step`.
"""

from __future__ import annotations

import contextlib
import statistics
import tempfile
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn
from torch.nn import functional

import memguard
from tests.bench.peers import LeastHooks
from tests.bench.rows import Row
from tests.bench.taken_out import middle, taken_out

WARM_UP = 80
"""Batches before the measured ones; after 64, probes are sampled."""
LATER = 10_000
"""Batches after which looks are about as rare as they become."""
SPAN, SPANS = 64, 160
"""Batches with hooks and as many without, and how often: a span has four sampled looks at least."""
WIDTH = 32
LOOP = "plain loop, a batch without memguard"
DEFAULTS = "watch, defaults (probes sampled after 64 batches)"
_HEADLINE = (
    ("hooks that do nothing", "idle", WARM_UP, None),
    ("the least hooks that record", "least", WARM_UP, None),
    ("watch, all probes on every batch", "all", WARM_UP, 60.0),
    (DEFAULTS, "default", WARM_UP, 15.0),
    ("watch, defaults, later on", "default", LATER, 15.0),
    ("watch, no probes", "none", WARM_UP, 5.0),
    ("watch, MEMGUARD_DISABLE=1", "disabled", WARM_UP, None),
    ("the loop without memguard against itself: how exact this is", "bare", WARM_UP, None),
)


class Cost(NamedTuple):
    """Microseconds of a batch without hooks, and what the hooks add to it."""

    bare: float
    added: float
    interval: int | None
    """At the end, one batch in so many was looked at."""


def measure(*, quick: bool = False) -> list[Row]:
    """Microseconds that each variant adds to a batch."""
    torch.set_num_threads(1)
    spans = SPANS // 4 if quick else SPANS
    rows, bare = [], []
    for label, variant, warm_up, aim in _HEADLINE:
        cost = _in_turns(variant, warm_up, spans)
        bare.append(cost.bare)
        rows.append(Row(label, cost.added, "us/batch", aim))
        if variant == "default" and cost.interval is not None:
            rows.append(Row(f"{label}: one batch is sampled in", cost.interval, "batches"))
    return [Row(LOOP, statistics.median(bare), "us"), *rows]


def _in_turns(variant: str, warm_up: int, spans: int) -> Cost:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 1)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    inputs, targets = torch.ones(8, WIDTH, device=device), torch.zeros(8, 1, device=device)

    def span(batches: int) -> float:
        began = time.process_time()
        for _ in range(batches):
            optimizer.zero_grad()
            functional.mse_loss(model(inputs), targets).backward()
            optimizer.step()
        return 1e6 * (time.process_time() - began) / batches

    bare, added = [], []
    with _guarding(variant, model, optimizer) as guard:
        span(warm_up)
        for _ in range(spans):
            under = span(SPAN)
            with taken_out(model):
                without = span(SPAN)
            bare.append(without)
            added.append(under - without)
        interval = guard.session.probes.pace.interval if variant == "default" else None
    return Cost(statistics.median(bare), middle(added), interval)


@contextlib.contextmanager
def _guarding(variant: str, model: nn.Module, optimizer: torch.optim.Optimizer) -> Iterator[Any]:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        if variant == "bare":
            yield None
            return
        if variant in ("idle", "least"):
            with LeastHooks(model, records=variant == "least"):
                yield None
            return
        if variant == "disabled":
            patch.setenv("MEMGUARD_DISABLE", "1")
        elif variant == "all":
            patch.setattr("memguard.evidence.sampling_budget.FIRST_BATCHES", 1 << 60)
        with memguard.watch(model, optimizer, logdir=folder, quiet=True) as guard:
            if variant == "none":
                guard.session.probes.remove()
            yield guard
