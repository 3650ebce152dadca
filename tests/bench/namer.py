"""What naming a holder takes in a large program, once for each cause: ``python -m tests.bench namer``."""

from __future__ import annotations

import statistics
import time

import torch
from torch import nn

from memguard.autograd.reach import Reach
from memguard.evidence.naming.holders import HolderSearch
from tests.bench.rows import Row

KEY = "tests.bench.namer"
BLOCKS, WIDTH, REPEATS = 62, 16, 7


class Mark:
    """A mark of a forward."""

    def __init__(self, step: int) -> None:
        self.step = step


class Block(nn.Module):
    """Seven modules, so that 62 blocks with head and root make 436."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.norm, self.act, self.drop = nn.LayerNorm(WIDTH), nn.GELU(), nn.Dropout(0.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """A residual block."""
        return x + self.c(self.drop(self.act(self.b(self.norm(self.a(x))))))


def measure(*, quick: bool = False) -> list[Row]:
    """Milliseconds of one naming: a list of losses and a sum, and the collector's fallback."""
    torch.set_num_threads(1)
    repeats = 3 if quick else REPEATS
    model = nn.Sequential(*(Block() for _ in range(BLOCKS)), nn.Linear(WIDTH, 1))
    table = [[{"row": i, "text": str(i)} for i in range(20)] for _ in range(4_000)]
    losses, total = [], torch.zeros(())
    for step in range(12):
        loss = model(torch.randn(2, WIDTH)).mean()
        if loss.grad_fn is not None:
            loss.grad_fn.metadata[KEY] = Mark(step)
        losses.append(loss)
        total = total + loss
    what = f"{sum(1 for _ in model.modules())} modules, a table of {len(table) * 20:,} rows"
    named, holders = timed(model, lambda mark: mark.step < 9, repeats)
    assert {"losses", "total"} <= holders, holders
    return [
        Row(f"a list and a sum named, {what}", named, "ms", 200.0),
        Row("no holder found", timed(model, lambda mark: False, repeats, collector=False)[0], "ms", 200.0),
        Row("no holder found, the garbage collector asked", timed(model, lambda mark: False, repeats)[0], "ms", 200.0),
        Row("the same among 400,000 objects", _in_a_crowd(model, repeats), "ms", 200.0),
    ]


def _in_a_crowd(model: nn.Module, repeats: int) -> float:
    """Milliseconds where the collector has much to go over, and the user's own data are the most of it."""
    crowd = [{"row": [i], "text": (i,)} for i in range(90_000)]
    assert crowd
    return timed(model, lambda mark: False, repeats)[0]


def timed(model: nn.Module, is_culprit: object, repeats: int, *, collector: bool = True) -> tuple[float, set[str]]:
    """The median time of one naming, and who was named."""
    times, names = [], set()
    for _ in range(repeats):
        reach = Reach(KEY, is_culprit)
        began = time.process_time()
        holders = HolderSearch(models=[model]).find(reach, passes=reach.passes, collector=collector)
        times.append(1e3 * (time.process_time() - began))
        names |= {str(holder.place.holder) for holder in holders}
    return statistics.median(times), names
