"""MG703: PyTorch's cache of pinned host memory grows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, final

from memguard.detectors.host_room import SampledGrowth
from memguard.detectors.interface import READINGS, Detector
from memguard.detectors.telling import from_record
from memguard.findings import Finding, Severity
from memguard.stats import BatchRecord, Run
from memguard.units import format_bytes


@final
class PinnedGrowth(Detector):
    """Pinned host memory grows.

    What: PyTorch's cache of pinned memory rises for good, towards what the machine has.

    Why it matters: pinned blocks are rounded up to powers of two and kept. With sizes that vary, the cache holds a
    block for every size, and nothing of it can be swapped.

    How to fix: a smaller ``prefetch_factor``, inputs of fixed sizes, ``pin_memory=False`` where copies are not the
    bottleneck; ``torch.accelerator.empty_host_cache()`` where it exists.
    """

    code: ClassVar[str] = "MG703"
    name: ClassVar[str] = "pinned-growth"
    hears: ClassVar[int] = READINGS

    def __init__(self) -> None:
        self._sampled = SampledGrowth()

    def observe(self, record: BatchRecord, run: Run) -> Iterable[Finding]:
        """Judges each new reading."""
        slow = run.slow
        rate = self._sampled.grows(slow, slow.pinned_bytes)
        if rate is None:
            return
        yield from_record(
            self,
            record,
            run,
            Severity.WARNING,
            f"pinned host memory grows by {format_bytes(rate)} a second, to {format_bytes(slow.pinned_bytes)} now, "
            f"of which {format_bytes(slow.pinned_active_bytes)} are in use.",
            "lower prefetch_factor, give batches a fixed size, or switch pin_memory off.",
            nbytes=slow.pinned_bytes,
        )
