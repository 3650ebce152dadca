"""A trace read as blocks: levels, peaks, what is alive, which line made it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memguard.allocator.snapshot import Frame
from memguard.allocator.timeline import AllocationTimeline, Peak

INNER, OUTER = Frame("/u/model.py", 3, "forward"), Frame("/u/train.py", 9, "step")
FUNCTIONAL = Frame("/lib/torch/nn/functional.py", 1, "relu")
LIBRARY = Frame("/lib/torch/nn/modules/linear.py", 1, "forward")


def event(action: str, address: int, size: int, *stack: Frame) -> dict[str, Any]:
    frames = [{"filename": file, "line": line, "name": name} for file, line, name in stack]
    return {"action": action, "addr": address, "size": size, "frames": frames}


def timeline(*events: dict[str, Any]) -> AllocationTimeline:
    return AllocationTimeline(events, is_user=lambda file: file.startswith("/u/"))


def test_the_peak_is_the_first_highest_level_and_moves_where_blocks_had_gone() -> None:
    """What was there before the trace counts as zero; a block that is thought away goes at the given event."""
    look = timeline(
        event("alloc", 1, 10),
        event("alloc", 2, 5),
        event("free_requested", 1, 10),
        event("free_completed", 1, 10),
        event("alloc", 3, 7),
        event("free_requested", 99, 4),
    )
    first, second, third = look.blocks
    assert look.levels() == [10, 15, 5, 5, 12, 8]
    assert look.peak() == Peak(15, 1)
    assert look.peak({first: 1}) == Peak(12, 4)
    assert look.peak({first: 1, third: 5}) == Peak(12, 4)
    assert (first.freed, second.freed, third.freed) == (2, None, None)
    assert timeline().peak() == Peak(0, 0)
    assert timeline(event("free_requested", 1, 10)).peak() == Peak(0, 0)


def test_lines_are_the_users_and_those_that_called_an_operator() -> None:
    """A library between a line and the operator means that the line did not call it; torch's wrappers do not count."""
    look = timeline(event("alloc", 1, 1, FUNCTIONAL, INNER, LIBRARY, OUTER), event("alloc", 2, 1, LIBRARY, OUTER))
    assert look.user_line(0) == INNER
    assert look.calling_lines(0) == (INNER,)
    assert look.user_line(1) == OUTER
    assert look.calling_lines(1) == ()


def test_a_run_of_a_line_ends_with_an_allocation_of_another() -> None:
    """What functions allocate that the line calls belongs to its run; what is freed meanwhile ends none."""
    look = timeline(
        event("alloc", 1, 1, OUTER),
        event("free_requested", 1, 1),
        event("alloc", 2, 1, INNER, OUTER),
        event("alloc", 3, 1, INNER),
        event("alloc", 4, 1, OUTER),
        event("free_requested", 4, 1),
    )
    assert look.is_one_run(OUTER, 0, 2) and not look.is_one_run(OUTER, 0, 3) and not look.is_one_run(OUTER, 0, 5)
    assert look.is_one_run(OUTER, 4, 5) and look.is_one_run(INNER, 2, 3) and not look.is_one_run(INNER, 0, 2)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 4), st.integers(1, 9)), max_size=30), st.data())
@pytest.mark.filterwarnings("ignore")
def test_levels_are_the_sum_of_what_is_alive(steps: list[tuple[bool, int, int]], data: st.DataObject) -> None:
    """With and without blocks that are thought to go earlier, after any event."""
    events, there = list[dict[str, Any]](), dict[int, int]()
    for is_alloc, address, size in steps:
        if is_alloc and address not in there:
            there[address] = size
            events.append(event("alloc", address, size))
        elif address in there:
            events.append(event("free_requested", address, there.pop(address)))
    look = timeline(*events)
    without = {
        block: data.draw(st.integers(block.made, len(events))) for block in look.blocks if data.draw(st.booleans())
    }
    without = {block: gone for block, gone in without.items() if gone < len(events)}

    def alive(block: Any, at: int) -> bool:
        return block.is_alive(at) and at < without.get(block, len(events))

    expected = [sum(block.size for block in look.blocks if alive(block, at)) for at in range(len(events))]
    assert look.levels(without) == expected
