"""A snapshot in words, for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from memguard.allocator.analysis import DeviceAnalysis, Trace
from memguard.allocator.analysis.lines import LineBytes
from memguard.allocator.analysis.space import OutOfMemoryEvent, Space
from memguard.allocator.analysis.timeline import Moment
from memguard.allocator.replay import Replay, WhatIf
from memguard.allocator.replay.result import enough_events
from memguard.text.units import format_bytes

MUCH_LAID_OUT: Final = 0.5
"""Share of the reserved peak that stood before the history, above which a what-if is mostly a guess."""


def render_device(found: DeviceAnalysis) -> str:
    """One device of a snapshot, explained."""
    return "\n".join(_device(found))


def render_replay(replayed: Replay, device: int) -> str:
    """How a replay of a device's history compares with its record."""
    if not enough_events(replayed.events):
        events = _count(replayed.events, "event", "events")
        return f"Replay of device {device}: {events}, too few for a replay to show anything"
    if replayed.exact:
        verdict = "exact: every address, every segment and the reserved bytes at the end as recorded"
    else:
        verdict = (
            f"not exact: {replayed.address_mismatches} addresses and {replayed.segment_mismatches} segment events "
            f"differ, {format_bytes(replayed.reserved_bytes)} reserved at the end instead of "
            f"{format_bytes(replayed.recorded_reserved_bytes)}"
        )
    return (
        f"Replay of device {device}: {replayed.events:,} events through the simulated allocator\n"
        f"  {verdict}\n"
        f"  peak: {format_bytes(replayed.reserved_peak_bytes)} reserved, "
        f"{format_bytes(replayed.allocated_peak_bytes)} allocated; "
        f"{_count(replayed.num_alloc_retries, 'retry', 'retries')}, {replayed.num_ooms} out of memory"
    )


def render_what_if(replayed: Replay, other: WhatIf, device: int) -> str:
    """What would have happened to a device otherwise, beside what happened."""
    conf = other.conf or "the default configuration"
    if not other.enough_events:
        events = _count(replayed.events, "event", "events")
        return f"With {conf}, device {device}: not tried, for a history of {events} is no evidence"
    where = ""
    if other.capacity_bytes is not None:
        bound = " at most" if other.capacity_source == "retry" else ""
        where = f" on a card with{bound} {format_bytes(other.capacity_bytes)} for PyTorch"
        where += {"retry": " (a retry shows it)", "out of memory": " (the failure shows it)"}.get(
            other.capacity_source or "", ""
        )
    difference = other.reserved_peak_bytes - replayed.reserved_peak_bytes
    change = "the same"
    if difference:
        change = f"{format_bytes(abs(difference))} {'more' if difference > 0 else 'less'}"
    lines = [
        f"With {conf}{where}, device {device}",
        f"  reserved peak: {format_bytes(other.reserved_peak_bytes)} ({change}), "
        f"at the end {format_bytes(other.reserved_bytes)} instead of {format_bytes(replayed.reserved_bytes)}",
        f"  {_count(other.num_segments, 'segment', 'segments')} at the end instead of {other.recorded_num_segments}; "
        f"{_count(other.num_alloc_retries, 'retry', 'retries')} instead of {replayed.num_alloc_retries}; "
        f"{other.num_ooms} out of memory instead of {replayed.num_ooms}",
    ]
    if other.laid_out_bytes > MUCH_LAID_OUT * max(other.reserved_peak_bytes, 1):
        lines.append(
            f"  {format_bytes(other.laid_out_bytes)} was allocated before the history began; its layout is a guess"
        )
    if other.first_oom is not None:
        lines.append(
            f"  it would run out of memory at event {other.first_oom.event:,}, asking for "
            f"{format_bytes(other.first_oom.size_bytes)} in {other.first_oom.where}"
        )
    elif replayed.num_ooms:
        lines.append("  the allocations that failed would have fitted")
    return "\n".join(lines)


def _device(found: DeviceAnalysis) -> Iterator[str]:
    yield f"Device {found.device}"
    yield from _space(found.space)
    if found.lines and found.stacks_recorded:
        yield "  In use when the snapshot was taken, by line:"
        yield from _lines(found.lines)
    if found.trace is not None:
        yield from _trace(found.trace, stacks=found.stacks_recorded)
    if found.advice:
        yield "  What to do:"
        yield from (f"    - {sentence}" for sentence in found.advice)


def _space(space: Space) -> Iterator[str]:
    kind = "expandable segments" if space.expandable else "segments"
    yield f"  Reserved: {format_bytes(space.reserved_bytes)} in {space.segments} {kind}"
    rows = [
        ("active_allocated", space.active_allocated_bytes, "owned by tensors"),
        ("active_pending_free", space.active_pending_free_bytes, "freed, another stream may still use it"),
        ("inactive", space.inactive_bytes, "free"),
    ]
    for state, nbytes, meaning in rows:
        share = nbytes / space.reserved_bytes if space.reserved_bytes else 0
        yield f"    {state:<20} {format_bytes(nbytes):>10} {share:>5.0%}  {meaning}"
    if space.private_pool_bytes:
        yield f"    of this in private pools (CUDA graphs, MemPools): {format_bytes(space.private_pool_bytes)}"
    yield (
        f"  Fragmentation: {space.fragmentation:.1%} of reserved is free in gaps between blocks in use "
        f"({format_bytes(space.split_bytes)}); {format_bytes(space.releasable_bytes)} more is in unused "
        "segments"
    )
    yield (
        f"  Largest free block: {format_bytes(space.largest_free_block_bytes)}, for requests of up to 1 MiB "
        f"{format_bytes(space.largest_free_small_bytes)}; a larger allocation needs new memory from the driver"
    )


def _trace(trace: Trace, *, stacks: bool) -> Iterator[str]:
    seconds = "" if trace.seconds is None else f" over {trace.seconds:.3g} s"
    actions = ", ".join(f"{count:,} {action}" for action, count in trace.actions.items())
    yield f"  History: {trace.events:,} events{seconds} ({actions})"
    if trace.out_of_memory is not None:
        yield from _out_of_memory(trace.out_of_memory)
    yield from _moment("At the peak of the history", trace.peak, stacks=stacks)
    yield from _moment("At the end of the history", trace.end, stacks=stacks)
    if stacks and trace.lines:
        yield "  Allocated most over the whole history, freed or not:"
        yield from _lines(trace.lines)
    yield from _steps(trace)


def _moment(title: str, moment: Moment, *, stacks: bool) -> Iterator[str]:
    when = "before the first event" if moment.event < 0 else f"event {moment.event:,}"
    if moment.time_us is not None and moment.event >= 0:
        when += f", {moment.time_us / 1e6:.3g} s"
    yield f"  {title} ({when}), {format_bytes(moment.allocated_bytes)} were allocated" + (":" if stacks else "")
    if stacks:
        yield from _lines(moment.lines)


def _out_of_memory(failed: OutOfMemoryEvent) -> Iterator[str]:
    where = f"{failed.file}:{failed.line} in {failed.function}" if failed.file else failed.function
    yield f"  Out of memory at event {failed.event:,}: {format_bytes(failed.size_bytes)} for {where}"
    free = "" if failed.device_free_bytes is None else f", {format_bytes(failed.device_free_bytes)} left on the device"
    yield (
        f"    {format_bytes(failed.reserved_bytes)} reserved, {format_bytes(failed.active_bytes)} of it in use{free}; "
        f"free in the cache: {format_bytes(failed.free_bytes)}, the largest usable piece "
        f"{format_bytes(failed.largest_free_block_bytes)}"
    )
    verdict = (
        "it would have fitted, had the free memory been in one place"
        if failed.fits_if_whole
        else "it could not fit, even with all free memory in one place"
    )
    yield f"    {verdict}"


def _steps(trace: Trace) -> Iterator[str]:
    steps, inner = trace.steps, trace.repetition
    if steps is None and inner is not None:
        yield (
            f"  {inner.count} repetitions of about {inner.events:,} allocations and frees, all within {inner.within}: "
            "no whole training steps, so nothing can be said of growth between steps"
        )
        return
    if steps is None:
        yield "  No repeating steps were found in the history, so nothing can be said of growth between them"
        return
    yield (
        f"  {steps.count} repeating steps of about {steps.events_per_step:,} allocations and frees; "
        f"{format_bytes(steps.allocated_bytes_per_step)} more alive after each"
    )
    if not steps.growth:
        yield "    no line keeps more with every step"
    for grown in steps.growth:
        yield (
            f"    +{format_bytes(grown.bytes_per_step)} a step (+{grown.count_per_step:.3g} blocks, "
            f"{format_bytes(grown.bytes)} in all)  {grown.where}"
        )


def _lines(lines: Sequence[LineBytes]) -> Iterator[str]:
    for line in lines:
        yield f"    {format_bytes(line.bytes):>10} in {line.count:>6,}  {line.where}"


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"
