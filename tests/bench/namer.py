"""Times the namer on a large model: ``python -m tests.bench.namer``."""

from __future__ import annotations

import gc
import statistics
import time

import torch
from torch import nn

from memguard.probes.holders import find_holders
from memguard.probes.reach import Reach

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


def main() -> None:
    """Prints the milliseconds of one naming: a list of losses, a sum, and the collector's fallback."""
    torch.set_num_threads(1)
    model = nn.Sequential(*(Block() for _ in range(BLOCKS)), nn.Linear(WIDTH, 1))
    table = [[{"row": i, "text": str(i)} for i in range(20)] for _ in range(4_000)]
    losses, total = [], torch.zeros(())
    for step in range(12):
        loss = model(torch.randn(2, WIDTH)).mean()
        if loss.grad_fn is not None:
            loss.grad_fn.metadata[KEY] = Mark(step)
        losses.append(loss)
        total = total + loss
    print(f"{sum(1 for _ in model.modules())} modules, {len(gc.get_objects())} objects, table of {len(table)}")
    timed("list and sum", model, lambda mark: mark.step < 9)
    timed("nobody", model, lambda mark: False, collector=False)
    timed("nobody, collector asked", model, lambda mark: False)


def timed(what: str, model: nn.Module, is_culprit: object, *, collector: bool = True) -> None:
    """Prints the median time of one naming."""
    times = []
    for _ in range(REPEATS):
        reach = Reach(KEY, is_culprit)
        began = time.perf_counter()
        holders = find_holders(reach, models=[model], passes=reach.passes, collector=collector)
        times.append(time.perf_counter() - began)
    names = ", ".join(str(holder.place.holder) for holder in holders)
    print(f"{what}: {statistics.median(times) * 1e3:.1f} ms (first {times[0] * 1e3:.1f} ms) {names}")


if __name__ == "__main__":
    main()
