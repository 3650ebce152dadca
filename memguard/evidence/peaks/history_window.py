"""Records the allocation history for a few batches, where it is worth it."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from memguard.evidence.interface import ProbeContext
from memguard.heap.frames import is_user_file

if TYPE_CHECKING:
    from memguard.allocator.timeline import AllocationTimeline

MAX_ENTRIES = 100_000


@final
class AllocationRecording:
    """At most one at a time; what somebody else records is read along on a virtual device and left alone on others.

    Args:
        watch: Who can record.

    Attributes:
        is_on: Whether there is one.
    """

    def __init__(self, watch: ProbeContext) -> None:
        self._watch = watch
        self._mine = self.is_on = False

    @property
    def is_free(self) -> bool:
        """Whether nobody records now."""
        return self._watch.history is not None and not self._watch.history.records_history

    def is_worth(self, nbytes: int, share: float) -> bool:
        """Whether so many bytes are worth the microseconds that each allocation takes.

        Args:
            nbytes: Zero or less is never worth it.
            share: Of the device, from which on they are; a virtual device is so slow that a history adds little.
        """
        total, is_virtual = self._watch.device_total_bytes or 0, self._watch.device.startswith("virtual")
        return nbytes > 0 and (is_virtual or (self.is_free and 0 < share * total <= nbytes))

    def begin(self) -> None:
        """Switches it on."""
        history = self._watch.history
        if history is not None:
            self.is_on, self._mine = True, not history.records_history
            if self._mine:
                history.record_history(True, MAX_ENTRIES)

    def end(self) -> None:
        """Switches off what is on."""
        if self.is_on and self._mine and self._watch.history is not None:
            self._watch.history.record_history(False, MAX_ENTRIES)
        self.is_on = False

    def read(self) -> AllocationTimeline:
        """What was recorded; and switches it off."""
        from memguard.allocator.timeline import AllocationTimeline  # most runs never need it

        history = self._watch.history
        try:
            traces = history.snapshot().get("device_traces", ()) if history is not None and self.is_on else ()
            return AllocationTimeline([event for events in traces for event in events], is_user=is_user_file)
        finally:
            self.end()
