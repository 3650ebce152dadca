from __future__ import annotations

import pytest

from memguard.allocator.analysis import analyse
from memguard.allocator.analysis.lines import BACKWARD, NATIVE, NO_STACK, Line, Lines
from memguard.allocator.snapshot import (
    ACTIVE,
    INACTIVE,
    PENDING,
    Annotation,
    Block,
    Frame,
    Segment,
    Snapshot,
    TraceEntry,
)
from memguard.report.snapshot_text import render_device
from tests.allocator.recorded import committed

MIB = 1 << 20
ENGINE = Frame("??", 0, "torch::autograd::Engine::thread_main(std::shared_ptr<GraphTask> const&)")
MODULE = Frame("/venv/lib/python3.11/site-packages/torch/nn/modules/module.py", 1750, "_call_impl")


def own(line: int, name: str = "main") -> Frame:
    return Frame("/home/user/train.py", line, name)


@pytest.mark.parametrize(
    ("stack", "line"),
    [
        ((Frame("??", 0, "malloc"), MODULE, own(7), own(9)), Line("/home/user/train.py", 7, "main")),
        ((MODULE, Frame("/usr/lib/python3.11/runpy.py", 5, "run"), own(3)), Line("/home/user/train.py", 3, "main")),
        ((Frame("/src/pytorch/torch/nn/functional.py", 5, "relu"), own(4)), Line("/home/user/train.py", 4, "main")),
        (
            (MODULE, Frame("/v/lib/python3.11/site-packages/transformers/models/gpt2.py", 8, "forward")),
            Line("/v/lib/python3.11/site-packages/transformers/models/gpt2.py", 8, "forward"),
        ),
        (
            (MODULE, Frame("/src/memguard/integrations/loop/backward_calls.py", 67, "backward"), MODULE, own(6)),
            Line("/home/user/train.py", 6, "main"),
        ),
        ((Frame("/v/lib/python3.11/site-packages/memguard/guards/no_grad.py", 7, "off"), ENGINE), BACKWARD),
        ((Frame("/home/memguard/train.py", 2, "<module>"),), Line("/home/memguard/train.py", 2, "<module>")),
        ((Frame("/var/ipykernel_12/345.py", 2, "<module>"),), Line("/var/ipykernel_12/345.py", 2, "<module>")),
        ((MODULE,), Line(MODULE.filename, 1750, "_call_impl")),
        ((ENGINE,), BACKWARD),
        ((Frame("call.cpp", 5, "call"),), NATIVE),
        ((), NO_STACK),
    ],
)
def test_the_users_own_line_is_found(stack: tuple[Frame, ...], line: Line) -> None:
    """Frames of torch, of libraries and of Python itself are skipped, unless there is nothing else; ours always."""
    assert Lines().of(stack) == line


def segment(address: int, *blocks: tuple[int, str]) -> Segment:
    made, at = [], address
    for size, state in blocks:
        made.append(Block(at, size, size - 100, state, (own(5),)))
        at += size
    return Segment(0, address, at - address, 0, False, False, (0, 0), tuple(made))


def test_capacity_is_told_by_state() -> None:
    """Allocated, pending and free bytes; what can be given back, and what lies in gaps."""
    segments = (
        segment(1 << 30, (4 * MIB, ACTIVE), (6 * MIB, INACTIVE), (2 * MIB, PENDING), (8 * MIB, INACTIVE)),
        segment(2 << 30, (30 * MIB, INACTIVE)),
    )
    space = analyse(Snapshot(segments, (), {}, ()), 0).space
    assert (space.active_allocated_bytes, space.active_pending_free_bytes) == (4 * MIB, 2 * MIB)
    assert (space.inactive_bytes, space.releasable_bytes, space.split_bytes) == (44 * MIB, 30 * MIB, 14 * MIB)
    assert (space.reserved_bytes, space.largest_free_block_bytes) == (50 * MIB, 30 * MIB)
    assert space.fragmentation == pytest.approx(0.28)
    assert space.requested_bytes == 6 * MIB - 200


def test_the_largest_free_block_is_told_for_small_requests_too() -> None:
    """They get nothing of segments for larger ones."""
    small = segment(3 << 30, (MIB // 2, INACTIVE), (MIB, ACTIVE), (MIB // 2, ACTIVE))._replace(small=True)
    found = analyse(Snapshot((segment(2 << 30, (4 * MIB, ACTIVE), (16 * MIB, INACTIVE)), small), (), {}, ()), 0)
    assert "Largest free block: 16.0 MiB, for requests of up to 1 MiB 512 KiB;" in render_device(found)


def entry(action: str, address: int, size: int, frame: Frame | None = None, time: int = 0) -> TraceEntry:
    return TraceEntry(action, address, size, 0, time, None, 5 * MIB, () if frame is None else (frame,))


def test_peak_and_end_name_what_was_alive() -> None:
    """The peak is in the middle, and what stood before the trace counts."""
    base = 1 << 30
    trace = (
        entry("alloc", base, 8 * MIB, own(1)),
        entry("alloc", base + 8 * MIB, 4 * MIB, own(2)),
        entry("free_requested", base, 8 * MIB),
        entry("free_completed", base, 8 * MIB),
    )
    segments = (segment(base, (8 * MIB, INACTIVE), (4 * MIB, ACTIVE), (8 * MIB, ACTIVE)),)
    told = analyse(Snapshot(segments, (trace,), {}, ()), 0).trace
    assert told is not None
    assert (told.peak.event, told.peak.allocated_bytes) == (1, 20 * MIB)
    assert {line.line: line.bytes for line in told.peak.lines} == {1: 8 * MIB, 2: 4 * MIB, 5: 8 * MIB}
    assert (told.end.allocated_bytes, {line.line for line in told.end.lines}) == (12 * MIB, {2, 5})


def test_a_failed_allocation_that_fragmentation_caused_is_called_so() -> None:
    """Enough is free, in pieces: the advice is expandable segments."""
    base = 1 << 30
    blocks = [(5 * MIB, ACTIVE if number % 2 else INACTIVE) for number in range(20)]
    trace = (entry("alloc", base + 5 * MIB, 5 * MIB, own(1)), entry("oom", 0, 30 * MIB, own(44)))
    found = analyse(Snapshot((segment(base, *blocks),), (trace,), {}, ()), 0)
    assert found.trace is not None
    failed = found.trace.out_of_memory
    assert failed is not None
    assert (failed.line, failed.size_bytes, failed.device_free_bytes) == (44, 30 * MIB, 5 * MIB)
    assert (failed.free_bytes, failed.largest_free_block_bytes, failed.fits_if_whole) == (50 * MIB, 5 * MIB, True)
    assert any("expandable_segments" in sentence for sentence in found.advice)


def test_a_failed_allocation_on_a_full_device_is_called_so() -> None:
    """Not fragmentation: expandable segments would not help, and are not advised."""
    base = 1 << 30
    trace = (entry("alloc", base, 90 * MIB, own(1)), entry("oom", 0, 30 * MIB, own(44)))
    found = analyse(Snapshot((segment(base, (90 * MIB, ACTIVE), (10 * MIB, INACTIVE)),), (trace,), {}, ()), 0)
    assert found.trace is not None
    assert found.trace.out_of_memory is not None
    assert not found.trace.out_of_memory.fits_if_whole
    assert not any("expandable_segments" in sentence for sentence in found.advice)


def loop(steps: int, kept_line: int | None, *outer: Frame) -> tuple[TraceEntry, ...]:
    """Each step makes three tensors at lines 1 to 3 and drops them, but for those of one line."""
    trace: list[TraceEntry] = []
    stacks = {line: (own(line), *outer) for line in (1, 2, 3)}
    address = 1 << 30
    for step in range(steps):
        alive = []
        for line in (1, 2, 3):
            address += line * MIB
            trace.append(TraceEntry("alloc", address, line * MIB, 0, step, None, None, stacks[line]))
            alive.append((line, address))
        for line, at in alive:
            if line != kept_line:
                trace += [entry("free_requested", at, line * MIB), entry("free_completed", at, line * MIB)]
    return tuple(trace)


def test_growth_between_steps_names_the_line() -> None:
    """Of three lines, the one that keeps its tensors is named with its bytes for a step."""
    told = analyse(Snapshot((), (loop(8, 2),), {}, ()), 0)
    assert told.trace is not None
    assert told.trace.steps is not None
    assert told.trace.steps.count == 7
    assert [(grown.line, grown.bytes_per_step) for grown in told.trace.steps.growth] == [(2, 2 * MIB)]
    assert "train.py:2" in told.advice[0]


def test_growth_at_one_line_is_named_under_a_default_device() -> None:
    """`torch.set_default_device` puts torch's own frame below the line, which is no call into a model."""
    below = Frame("/venv/lib/python3.11/site-packages/torch/utils/_device.py", 122, "__torch_function__")
    stack = (below, own(2))
    trace = tuple(TraceEntry("alloc", (1 + at) << 30, MIB, 0, at, None, None, stack) for at in range(8))
    told = analyse(Snapshot((), (trace,), {}, ()), 0)
    assert told.trace is not None
    assert told.trace.steps is not None
    assert [grown.line for grown in told.trace.steps.growth] == [2]


def test_steady_steps_show_no_growth() -> None:
    """The same loop without a leak."""
    told = analyse(Snapshot((), (loop(8, None),), {}, ()), 0)
    assert told.trace is not None
    assert told.trace.steps is not None
    assert told.trace.steps.growth == ()


@pytest.mark.parametrize("outer", [MODULE, own(50, "forward")], ids=["module", "forward"])
def test_the_layers_of_one_forward_are_no_steps(outer: Frame) -> None:
    """What repeats within one call of a model are its layers, and what they keep are activations."""
    told = analyse(Snapshot((), (loop(8, 2, outer),), {}, ()), 0)
    assert told.trace is not None
    assert told.trace.steps is None


def test_annotated_optimizer_steps_are_the_steps() -> None:
    """Where the trace tells of optimizers, their steps count and nothing is guessed."""
    ends = [Annotation("Optimizer.step#SGD", "END", 0, time) for time in (1, 3, 5, 7)]
    told = analyse(Snapshot((), (loop(10, 3),), {}, tuple(ends)), 0)
    assert told.trace is not None
    assert told.trace.steps is not None
    assert told.trace.steps.count == 3
    assert told.trace.steps.growth[0].bytes_per_step == 6 * MIB
    few = analyse(Snapshot((), (loop(10, 3),), {}, tuple(ends[:2])), 0)
    assert few.trace is not None
    assert few.trace.steps is None


def test_a_real_leak_is_found() -> None:
    """The recorded training that keeps every loss with its graph."""
    told = analyse(committed("leak"), 0)
    assert told.trace is not None
    assert told.trace.steps is not None
    assert told.trace.steps.count == 11
    assert told.trace.steps.growth[0].function == "train"
    assert told.trace.steps.growth[0].bytes_per_step == 3 * MIB // 2


def test_random_work_has_no_steps() -> None:
    """Nothing repeats in it, so nothing is said to grow."""
    told = analyse(committed("streams"), 0)
    assert told.trace is not None
    assert told.trace.steps is None


def test_missing_stacks_and_history_are_said() -> None:
    """It says what was not recorded, and how to record it."""
    bare = Segment(0, 512, 2 * MIB, 0, True, False, (0, 0), (Block(512, 2 * MIB, 5, ACTIVE, ()),))
    advice = " ".join(analyse(Snapshot((bare,), (), {}, ()), 0).advice)
    assert "No history" in advice
    assert "lines are unknown" in advice
    assert "_record_memory_history" in advice


def test_a_line_is_one_line_whatever_its_frame_is_called() -> None:
    """Names come from the file; one with an end of a line in it must not look like another entry."""
    line = Line("train.py", 3, "step\n900 GiB  other.py:1 in \x1b[2Jgone")
    assert str(line) == "train.py:3 in step\\n900 GiB  other.py:1 in \\x1b[2Jgone"
