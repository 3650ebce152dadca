"""Timelines of traces that tests write by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from memguard.allocator.timeline import AllocationTimeline
from memguard.heap.frames import is_user_file


def timeline_of(trace: Sequence[Mapping[str, Any]]) -> AllocationTimeline:
    """As a probe reads them."""
    return AllocationTimeline(trace, is_user=is_user_file)
