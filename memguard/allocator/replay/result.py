"""How a replay compares with its record, and how much of a history it takes before anything is concluded from it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any, Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """How a replay compares with its record."""

    exact: bool
    """Every address, every segment event and the reserved bytes at the end came out as recorded."""
    events: int
    """Events of the trace."""
    address_mismatches: int
    segment_mismatches: int
    reserved_bytes: int
    """At the end."""
    recorded_reserved_bytes: int
    reserved_peak_bytes: int
    allocated_peak_bytes: int
    num_alloc_retries: int
    num_ooms: int

    def __add__(self, other: Replay) -> Replay:
        """Two devices together."""
        sums = {
            field.name: getattr(self, field.name) + getattr(other, field.name)
            for field in fields(self)
            if field.name != "exact"
        }
        return Replay(exact=self.exact and other.exact, **sums)

    def to_json(self) -> dict[str, Any]:
        """The same under the names of the fields."""
        return asdict(self)


FEWEST_EVENTS: Final = 32
"""A history with fewer events is what a ring buffer of one entry, or a look at an idle moment, leaves behind."""


def enough_events(events: int) -> bool:
    """Whether so many events are evidence."""
    return events >= FEWEST_EVENTS
