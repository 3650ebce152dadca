"""The empty_cache policies: when to release the allocator's cache, and what that frees."""

from __future__ import annotations

from typing import final

from memguard.backends.interface import Backend
from memguard.clocks import perf_counter
from memguard.records.claims import Claim
from memguard.records.findings import Severity
from memguard.records.stats import BatchRecord, Run, Stage
from memguard.text.units import MIB, format_bytes

CODE, NAME = "MG002", "cache-emptied"
# "auto" acts only when this much of the device could come back, and no more than that is left free.
_WORTH = 0.1
_NEARLY_FULL = 0.1
_LEAST_BYTES = 64 * MIB


@final
class CacheGuard:
    """Empties the cache by a policy, and reports each act.

    Args:
        policy: "never", "validation" (its edges), "epoch", "auto", or a number: every so many batches. All but "auto"
            go by the loop alone, so that all ranks act at once; "auto" goes by this rank's memory, at the edges of
            evaluations and of the program's phases, and with several ranks only tells.
        backend: The device.
    """

    def __init__(self, policy: str | int, backend: Backend) -> None:
        self._policy, self._backend = policy, backend
        self._batches = 0
        self._acts = 0
        self._left = False
        self._returned_bytes = 0
        self._seconds = 0.0
        self.counts_batches = isinstance(policy, int)
        """Whether the policy acts between two batches: it is told of each as it ends then."""
        self.hears_phases = policy == "auto"
        """Whether the policy acts at the beginning and the end of the program's phases."""

    def after_batch(self, record: BatchRecord) -> Claim | None:
        """A batch is over."""
        if not isinstance(self._policy, int) or record.stage in (Stage.OTHER, Stage.CHECKPOINT):
            return None  # ranks may differ in those, and must act after the same batches
        self._batches += 1
        if self._batches % self._policy:
            return None
        return self._act(record.batch, record.stage, f"as asked, every {self._policy} batches")

    def at_edge(self, stage: Stage, *, batch: int, starts: bool, run: Run) -> Claim | None:
        """A stage begins or ends."""
        if self._policy == "validation" and stage in (Stage.VALIDATION, Stage.TEST):
            return self._act(batch, stage, f"as asked, at the {'start' if starts else 'end'} of {stage.value}")
        if self._policy == "auto" and stage.evaluates:
            reason = self._need(run)
            if reason is not None:
                return self._act(batch, stage, reason) if run.world_size == 1 else self._leave(batch, stage, reason)
        return None

    def at_phase_edge(self, stage: Stage, *, batch: int, run: Run) -> Claim | None:
        """A phase that the program names begins or ends: others may want what this process only caches."""
        if self._policy != "auto" or run.slow.device_used_bytes is None or not run.device_total_bytes:
            return None
        reserved = self._backend.read().reserved_bytes or 0
        if run.slow.device_used_bytes - reserved < _WORTH * run.device_total_bytes:
            return None  # nobody else is there, and the next phase takes it from the cache
        reason = self._need(run)
        if reason is None:
            return None
        return self._act(batch, stage, reason) if run.world_size == 1 else self._leave(batch, stage, reason)

    def at_epoch_end(self, *, batch: int) -> Claim | None:
        """A training epoch is over."""
        if self._policy != "epoch":
            return None
        return self._act(batch, Stage.TRAIN, "as asked, at the end of an epoch")

    def _need(self, run: Run) -> str | None:
        """Why it would help now: much can come back, and the device is nearly full."""
        stats, total = self._backend.read(), run.device_total_bytes
        if total is None or stats.reserved_bytes is None or stats.allocated_bytes is None:
            return None
        cached = stats.reserved_bytes - stats.allocated_bytes - (stats.inactive_split_bytes or 0)
        used = max(run.slow.device_used_bytes or 0, stats.reserved_bytes)
        if cached < max(_LEAST_BYTES, _WORTH * total) or total - used > _NEARLY_FULL * total:
            return None
        return f"{format_bytes(cached)} of the cache were unused while only {format_bytes(total - used)} was free"

    def _act(self, batch: int, stage: Stage, reason: str) -> Claim | None:
        began = perf_counter()
        returned = self._backend.empty_cache()
        seconds = perf_counter() - began
        if returned is None:
            return None
        self._acts += 1
        self._returned_bytes += returned
        self._seconds += seconds
        return Claim(
            code=CODE,
            name=NAME,
            severity=Severity.INFO,
            message=f"emptied the cache ({reason}): {format_bytes(returned)} went back to the driver in "
            f"{1000 * seconds:.1f} ms.",
            advice="",
            stage=stage,
            batch=batch,
            bytes=returned,
        )

    def _leave(self, batch: int, stage: Stage, reason: str) -> Claim | None:
        """Says once what would have been done: a rank that empties its cache alone makes all others wait for it."""
        if self._left:
            return None
        self._left = True
        return Claim(
            code=CODE,
            name=NAME,
            severity=Severity.INFO,
            message=f"left the cache as it is, though {reason}: with several ranks all must do it at the same moment, "
            "and asking the others would cost a collective.",
            advice='if the ranks have such need at the same stages, say empty_cache="validation": all ranks then act '
            "at its edges.",
            stage=stage,
            batch=batch,
        )

    def account(self) -> str | None:
        """All acts in a sentence; None if there were none."""
        if not self._acts:
            return None
        return (
            f"the cache was emptied {self._acts} time{'s' * (self._acts > 1)}: {format_bytes(self._returned_bytes)} "
            f"went back to the driver, in {self._seconds:.2f} s altogether"
        )
