"""A snapshot explained: capacity, owners, peak, growth, and what to do, as plain numbers and lines."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

from memguard.allocator.analysis.advice import advice_for
from memguard.allocator.analysis.lines import EARLIER, LineBytes, Lines, top_lines
from memguard.allocator.analysis.space import OutOfMemoryEvent, Space, last_out_of_memory, space_of
from memguard.allocator.analysis.steps import Repetition, Steps, repetition_of, steps_of
from memguard.allocator.analysis.timeline import Moment, changes, end_of, peak_of
from memguard.allocator.analysis.trial import try_expandable
from memguard.allocator.config import AllocatorConfig
from memguard.allocator.replay.recorded_conf import recorded_conf
from memguard.allocator.snapshot import ACTIVE, Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """What the recorded history of a device tells."""

    events: int
    actions: dict[str, int]
    """Number of events by action."""
    seconds: float | None
    peak: Moment
    end: Moment
    lines: tuple[LineBytes, ...]
    """The lines that allocated most over the whole trace, whether it was freed again or not."""
    steps: Steps | None
    """None where nothing repeats."""
    repetition: Repetition | None
    """What repeats within one call, where there are no steps."""
    out_of_memory: OutOfMemoryEvent | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceAnalysis:
    """One device of a snapshot, explained."""

    device: int
    space: Space
    lines: tuple[LineBytes, ...]
    """The user's lines that own the blocks in use when the snapshot was taken."""
    stacks_recorded: bool
    trace: Trace | None
    """None where no history was recorded."""
    advice: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """The same under the names of the fields."""
        return asdict(self)


def analyse(snapshot: Snapshot, device: int, top: int = 10) -> DeviceAnalysis:
    """One device of a snapshot, explained."""
    segments, trace = snapshot.segments_of(device), snapshot.trace_of(device)
    config = AllocatorConfig.parse(recorded_conf(snapshot.settings))
    lines = Lines()
    space = space_of(segments)
    told_of = {entry.address for entry in trace if entry.action == "alloc"}
    owned = [
        (lines.of(b.stack) if b.stack or b.address in told_of else EARLIER, b.size)
        for s in segments
        for b in s.blocks
        if b.state == ACTIVE
    ]
    stacks = any(b.stack for s in segments for b in s.blocks) or any(entry.stack for entry in trace)
    told = None
    if trace:
        before, after = changes(segments, trace, config, lines)
        first, last = trace[0].time_us, trace[-1].time_us
        steps = steps_of(after, trace, [a for a in snapshot.annotations if a.device == device], top)
        told = Trace(
            events=len(trace),
            actions=dict(Counter(entry.action for entry in trace).most_common()),
            seconds=None if first is None or last is None else (last - first) / 1e6,
            peak=peak_of(before, after, trace, top),
            end=end_of(before, after, trace, top),
            lines=top_lines([(change.line, change.bytes) for change in after if change.bytes > 0], top),
            steps=steps,
            repetition=repetition_of(after) if steps is None else None,
            out_of_memory=last_out_of_memory(segments, trace, config, lines),
        )
    return DeviceAnalysis(
        device=device,
        space=space,
        lines=top_lines(owned, top),
        stacks_recorded=stacks,
        trace=told,
        advice=advice_for(
            space,
            told.out_of_memory if told else None,
            told.steps if told else None,
            traced=told is not None,
            stacks=stacks,
            expandable=config.expandable_segments,
            trial=lambda: try_expandable(snapshot, device) if trace else None,
        ),
    )
