"""What to do about what a snapshot shows, in the order in which it matters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from memguard.allocator.analysis.space import OutOfMemoryEvent, Space
from memguard.allocator.analysis.steps import Steps
from memguard.allocator.analysis.trial import EXPANDABLE_CONF, Trial
from memguard.text.units import MIB, format_bytes

HOW_TO_RECORD: Final = (
    'give memguard history="always", or call torch.cuda.memory._record_memory_history(stacks="python") before the '
    'part in question and torch.cuda.memory._dump_snapshot("snapshot.pickle") after it'
)
_MUCH_FRAGMENTED: Final = 0.15
_MUCH_RELEASABLE: Final = 0.25
_EXPANDABLE: Final = f"set PYTORCH_CUDA_ALLOC_CONF={EXPANDABLE_CONF} before the program starts"


def advice_for(
    space: Space,
    out_of_memory: OutOfMemoryEvent | None,
    steps: Steps | None,
    *,
    traced: bool,
    stacks: bool,
    expandable: bool,
    trial: Callable[[], Trial | None],
) -> tuple[str, ...]:
    """Advice as sentences; empty where nothing is wrong.

    Args:
        space: The capacity by state.
        out_of_memory: The last failed allocation.
        steps: The repeating steps.
        traced: Whether a history was recorded.
        stacks: Whether stacks were recorded.
        expandable: Whether the allocator already uses expandable segments.
        trial: Replays the history with expandable segments; asked only where they would be advised.
    """
    advice = []
    if steps is not None and steps.growth:
        worst = steps.growth[0]
        advice.append(
            f"{worst.where} leaves {format_bytes(worst.bytes_per_step)} more alive with every step; find what still "
            "holds these tensors (a list, a total of losses that were not detached, a cache) and let go of it."
        )
    if out_of_memory is not None:
        advice.append(_after(out_of_memory, expandable, trial))
    elif space.fragmentation >= _MUCH_FRAGMENTED and space.split_bytes >= 64 * MIB:
        advice.append(
            f"{space.fragmentation:.0%} of the reserved memory is free in gaps between blocks in use"
            + ("." if expandable else _against_gaps(trial()))
        )
    if out_of_memory is None and space.releasable_bytes >= _MUCH_RELEASABLE * max(space.reserved_bytes, 1):
        advice.append(
            f"{format_bytes(space.releasable_bytes)} of the reserved memory is in unused segments. It is not lost: "
            "allocations reuse it, and PyTorch releases it when memory runs short. Only another process would gain "
            "from torch.cuda.empty_cache()."
        )
    if space.active_pending_free_bytes >= 0.05 * max(space.reserved_bytes, 1):
        advice.append(
            f"{format_bytes(space.active_pending_free_bytes)} was freed but waits for another stream "
            "(record_stream); synchronise with that stream sooner, or free later."
        )
    if not traced:
        unknown = "peak and growth are unknown" if stacks else "peak, growth and lines are unknown"
        advice.append(f"No history was recorded, so {unknown}: {HOW_TO_RECORD}.")
    elif not stacks:
        advice.append(f"No stacks were recorded, so no line can be named: {HOW_TO_RECORD}.")
    return tuple(advice)


def _against_gaps(tried: Trial | None) -> str:
    if tried is None:
        return f"; {EXPANDABLE_CONF} may lower that, but this history cannot show it."
    if tried.saves:
        return f"; {_EXPANDABLE}: replayed so, {tried.outcome}."
    return f"; expandable segments would not help: replayed with them, {tried.outcome}."


def _after(failed: OutOfMemoryEvent, expandable: bool, trial: Callable[[], Trial | None]) -> str:
    needed = format_bytes(failed.size_bytes)
    if not failed.fits_if_whole:
        return (
            f"The allocation of {needed} failed because the memory was in use, not because it was fragmented: make the "
            "batch smaller, checkpoint activations, or free what the lines alive at the peak hold."
        )
    if expandable:
        return (
            f"The allocation of {needed} failed although {format_bytes(failed.free_bytes)} were free in pieces, even "
            "with expandable segments; free large tensors before small ones are made beside them, or use fewer streams."
        )
    in_pieces = (
        f"The allocation of {needed} failed although {format_bytes(failed.free_bytes)} were free, in pieces or in "
        "segments for other sizes (tensors of up to 1 MiB have their own). "
    )
    tried = trial()
    if tried is None:
        return f"{in_pieces}{EXPANDABLE_CONF} may help, but this history cannot show it."
    if tried.other_num_ooms:
        return (
            f"{in_pieces}Replayed with expandable segments it fails too; make the batch smaller, or free large tensors "
            "before small ones are made beside them."
        )
    return f"{in_pieces}First {_EXPANDABLE}: replayed so, it fits, and {tried.outcome}."
