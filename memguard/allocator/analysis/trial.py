"""Expandable segments tried on a recorded history, so that advice about them is what a replay shows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

from memguard.allocator.snapshot import Snapshot
from memguard.errors import SnapshotError
from memguard.text.units import format_bytes

EXPANDABLE_CONF: Final = "expandable_segments:True"
_MOST_EVENTS: Final = 200_000
"""Of a longer history the trial takes many seconds; it is made where somebody asks for it."""
_WORTH: Final = 0.02
"""Share of the reserved peak that must be saved for a setting to be advised."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """The history replayed as it was recorded, and with expandable segments."""

    reserved_peak_bytes: int
    other_reserved_peak_bytes: int
    num_alloc_retries: int
    other_num_alloc_retries: int
    other_num_ooms: int

    @property
    def saves(self) -> bool:
        """Whether expandable segments reserve clearly less."""
        return self.other_reserved_peak_bytes <= (1 - _WORTH) * self.reserved_peak_bytes

    @property
    def outcome(self) -> str:
        """What the replay shows, in words."""
        difference = self.other_reserved_peak_bytes - self.reserved_peak_bytes
        peak = f"{format_bytes(abs(difference))} {'more' if difference > 0 else 'less'}" if difference else "as much"
        before, after = self.num_alloc_retries, self.other_num_alloc_retries
        retries = f", with {after} instead of {before} allocation retries" if before != after else ""
        return f"the reserved peak is {peak}{retries}"


def try_expandable(snapshot: Snapshot, device: int) -> Trial | None:
    """What expandable segments would have changed; None where the history is too short, too long or inexact."""
    from memguard.allocator.replay import replay, what_if

    events = len(snapshot.trace_of(device))
    if events > _MOST_EVENTS:
        return None
    try:
        other = what_if(snapshot, device, conf=EXPANDABLE_CONF)
        recorded = replay(snapshot, device)
    except SnapshotError:
        return None
    if not other.enough_events or not recorded.exact or other.laid_out_bytes > other.reserved_peak_bytes / 2:
        return None
    return Trial(
        reserved_peak_bytes=recorded.reserved_peak_bytes,
        other_reserved_peak_bytes=other.reserved_peak_bytes,
        num_alloc_retries=recorded.num_alloc_retries,
        other_num_alloc_retries=other.num_alloc_retries,
        other_num_ooms=other.num_ooms,
    )
