"""PyTorch's cache of pinned memory, read at growing intervals: it rounds up and keeps."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

import torch

from memguard.evidence.interface import Probe, ProbeContext
from memguard.records.facts import Fact, PinnedCacheGrows

FIRST, LAST = 16, 4096
"""Batches of the first look; each later one comes after twice as many."""
RISES = 2
"""Looks in a row that have to show more than the one before."""
MIN_GROWN_BYTES = 16 * 1024**2


@final
class PinnedProbe(Probe):
    """Tells once, when the cache rose from look to look and is twice what it was."""

    def __init__(self, watch: ProbeContext, report: Callable[[Fact], None]) -> None:
        super().__init__(watch, report)
        self._next = FIRST
        self._held: list[tuple[int, int]] = []

    def on_batch_end(self) -> None:
        """Looks when it is due."""
        watch = self.watch
        if watch.batches < self._next:
            return
        self._next *= 2
        if self._next > LAST or watch.device.partition(":")[0] not in ("cuda", "auto"):
            self.unsubscribe("on_batch_end")
        held, active = _pinned_bytes()
        if held is None:
            return
        self._held = [*self._held[-RISES:], (watch.batch, held)]
        (since, before), rises = (
            self._held[0],
            sum(b[1] > a[1] for a, b in zip(self._held, self._held[1:], strict=False)),
        )
        if rises < RISES or held < 2 * before or held - before < MIN_GROWN_BYTES:
            return
        self.unsubscribe("on_batch_end")
        self.report(
            PinnedCacheGrows(
                **watch.now,
                bytes=held,
                active_bytes=active,
                before_bytes=before,
                since_batch=since,
            )
        )


def _pinned_bytes() -> tuple[int | None, int | None]:
    """What the cache holds, and what of it is in use; the keys changed their names after torch 2.7."""
    told = getattr(torch.cuda, "host_memory_stats", None)
    if told is None or not torch.cuda.is_initialized():
        return None, None
    stats = told()
    old = "reserved_bytes.current" in stats
    held = stats.get("reserved_bytes.current" if old else "allocated_bytes.current")
    return held, stats.get("allocated_bytes.current" if old else "active_bytes.current")
