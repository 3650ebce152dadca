"""What one turn of a loop that repeats itself consists of: its events, and the batches that begin in it."""

from __future__ import annotations

from collections.abc import Callable

from memguard.records.fast_path_state import LoopEvent
from memguard.records.stats import Stage

_SIMPLE = [
    (True, False, False, False),
    (False, True, False, False),
    (False, False, True, False),
    (False, False, False, True),
]
"""A batch begins, its forward and its step, with which it ends."""


def turn_of(event: LoopEvent) -> list[LoopEvent]:
    """The events of one turn, from this one on."""
    turn = [event]
    while (event := event.next) is not turn[0]:
        turn.append(event)
    return turn


def is_simple(event: LoopEvent) -> bool:
    """Whether a turn is a forward and a step of training: probes can see these on the fast path too."""
    kinds = [(each.begins, bool(each.answered), bool(each.stepping), each.ends) for each in turn_of(event)]
    return kinds == _SIMPLE and event.called != 0 and event.stage is Stage.TRAIN


def batches_after(event: LoopEvent, begun: int) -> dict[Stage, int]:
    """The stages of so many batches that began from an event on."""
    stages = [each.stage for each in turn_of(event) if each.begins]
    turns, rest = divmod(begun, len(stages))
    return {stage: turns * stages.count(stage) + stages[:rest].count(stage) for stage in dict.fromkeys(stages)}


def batches_within(event: LoopEvent, ahead_of: Callable[[Stage], int]) -> int:
    """How many batches may begin from an event on, of each stage no more than so many."""
    stages = [each.stage for each in turn_of(event) if each.begins]
    ahead = {stage: ahead_of(stage) for stage in dict.fromkeys(stages)}
    turns = min(ahead[stage] // stages.count(stage) for stage in ahead)
    left = {stage: ahead[stage] - turns * stages.count(stage) for stage in ahead}
    further = 0
    for stage in stages:
        if not left[stage]:
            break
        left[stage] -= 1
        further += 1
    return turns * len(stages) + further
