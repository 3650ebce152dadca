"""How much of a history it takes before anything is concluded from it."""

from __future__ import annotations

from typing import Final

FEWEST_EVENTS: Final = 32
"""A history with fewer events is what a ring buffer of one entry, or a look at an idle moment, leaves behind."""


def enough_events(events: int) -> bool:
    """Whether so many events are evidence."""
    return events >= FEWEST_EVENTS
