"""Owners of the highest peak: counted whenever it has become clearly higher."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from memguard.backends.interface import Backend
from memguard.evidence.interface import ProbeContext
from memguard.evidence.owners import count_owners
from memguard.recorder import Recorder
from memguard.records.stats import BatchRecord
from memguard.torch_objects.storages import unheard

_HIGHER = 20  # the next count is for a peak that is higher by one part in so many


@final
class PeakOwners:
    """Splits each new highest peak by owner, into the recording."""

    def __init__(self, recorder: Recorder, watch: ProbeContext, backend: Backend) -> None:
        self._recorder, self._watch, self._backend = recorder, watch, backend
        self._worth_bytes = 0

    def after_records(self, records: Sequence[BatchRecord]) -> None:
        """Records were made."""
        highest = max(records, key=_peak_of)
        peak_bytes = _peak_of(highest)
        if peak_bytes <= self._worth_bytes:
            return
        self._worth_bytes = peak_bytes + peak_bytes // _HIGHER
        kind = self._backend.device.partition(":")[0]
        with unheard():
            owners = count_owners(
                self._watch.models,
                self._watch.optimizers,
                allocated_bytes=peak_bytes,
                device_type=kind if kind in ("cuda", "xpu", "mps") else None,
            )
        self._recorder.line("owners", {"batch": highest.batch, **owners.to_json()})


def _peak_of(record: BatchRecord) -> int:
    return record.allocated_peak_bytes or 0
