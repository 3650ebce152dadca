"""Whether the run's own trace would have fitted under other settings of the allocator."""

from __future__ import annotations

import math
from typing import Any

from memguard.allocator.replay import what_if
from memguard.allocator.snapshot_reader import snapshot_of
from memguard.postmortem.advice import EXPANDABLE
from memguard.postmortem.scene import Replayed

SPARE = 0.05
"""Share of the room that must be left: the trace ends at the failed request, and its batch had more to ask for."""
MOST_EVENTS = 10_000
MOST_BLOCKS = 50_000
"""In all they would take a second to be laid out anew."""


def replay_with(
    snapshot: dict[str, Any] | None,
    device: int,
    *,
    batches: int | None = None,
    room_bytes: int | None = None,
) -> tuple[Replayed, ...]:
    """The newest events of a snapshot's trace, replayed with expandable segments; nothing where that is too much.

    Args:
        snapshot: In PyTorch's format, as plain data; its trace must end with the failed allocation.
        device: Index of the device.
        batches: How many batches the trace covers, the failing one included; None where that is not known.
        room_bytes: All that this process could have; None where that is not known.
    """
    most = math.inf if room_bytes is None else (1 - SPARE) * room_bytes
    if snapshot is None or len(snapshot["device_traces"]) <= device or not snapshot["device_traces"][device]:
        return ()
    events = snapshot["device_traces"][device][-MOST_EVENTS:]
    if len(events) < len(snapshot["device_traces"][device]):
        batches = None
    traces: list[Any] = [[] for _ in snapshot["device_traces"]]
    traces[device] = [{**event, "frames": None} for event in events]
    segments = [segment for segment in snapshot["segments"] if segment.get("device", device) == device]
    if sum(len(segment["blocks"]) for segment in segments) > MOST_BLOCKS:
        return ()
    bare = [{**held, "blocks": [{**block, "frames": None} for block in held["blocks"]]} for held in segments]
    parsed = snapshot_of({**snapshot, "segments": bare, "device_traces": traces, "external_annotations": []})
    other = what_if(parsed, device, conf=EXPANDABLE)
    fits = other.num_ooms == 0 and other.reserved_peak_bytes <= most
    reserved = other.reserved_peak_bytes
    found = Replayed(conf=EXPANDABLE, fits=fits, reserved_peak_bytes=reserved, events=len(events), batches=batches)
    return (found,)
