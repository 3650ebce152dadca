"""The repeating steps of a trace, and the lines of which more stays alive with every step."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Final

from memguard.allocator.analysis.lines import Line
from memguard.allocator.analysis.timeline import Allocation
from memguard.allocator.snapshot import Annotation, Frame, Stack, TraceEntry

_MIN_STEPS: Final = 3
_KEYS: Final[tuple[Callable[[Allocation], Hashable], ...]] = (
    lambda change: (id(change.stack), change.bytes),
    lambda change: (change.line, change.bytes),
    lambda change: change.line,
)
"""What makes two allocations the same one of another step, the narrowest first."""
_OPTIMIZER_STEP: Final = "Optimizer.step#"
_INSIDE_TORCH: Final = re.compile(r"[/\\]torch[/\\](nn|optim|autograd|utils|_dynamo|_inductor)[/\\](?!_device\.py$)")
"""But for the frame that a default device puts below any line that calls an operator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """A line of which more stays alive with every step."""

    file: str | None
    line: int | None
    function: str | None
    bytes_per_step: int
    """Mean over the steps."""
    count_per_step: float
    bytes: int
    """Grown in all."""

    @property
    def where(self) -> str:
        """The line as text."""
        return str(Line(self.file, self.line, self.function))


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """The repeating steps of a trace."""

    count: int
    """Whole steps seen."""
    events_per_step: int
    allocated_bytes_per_step: int
    """How much more is alive after a typical one, their median; the first step, which sets things up, left out."""
    growth: tuple[Growth, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Repetition:
    """What repeats within one call: layers of a forward, parameters of an optimizer's step. No training steps."""

    count: int
    events: int
    """Allocations and frees in each."""
    within: str
    """The call as text."""


def steps_of(
    after: Sequence[Allocation], trace: Sequence[TraceEntry], annotations: Sequence[Annotation], top: int
) -> Steps | None:
    """The repeating steps of a trace, None if nothing repeats at least three times.

    Where optimizers were annotated, a step ends with each optimizer's step. Else a step begins where its
    anchor is allocated: a pair of stack and size (or of line and size, where steps are called from several places) that
    comes once in a step. Pairs that come equally often, at even distances and until the end of the trace, are such; the
    number that most of them share is the number of steps.
    """
    optimizer_steps = [a.time_us for a in annotations if a.name.startswith(_OPTIMIZER_STEP) and a.stage == "END"]
    begins = _after_times(optimizer_steps, after, trace) if optimizer_steps else _repeats(after)[0]
    if len(begins) < _MIN_STEPS + 1:
        return None
    changed: list[Counter[Line]] = []
    counted: list[Counter[Line]] = []
    for begin, end in pairwise(begins):
        nbytes: Counter[Line] = Counter()
        count: Counter[Line] = Counter()
        for change in after[begin:end]:
            nbytes[change.line] += change.bytes
            count[change.line] += 1 if change.bytes > 0 else -1
        changed.append(nbytes)
        counted.append(count)
    steady, steady_counts = changed[1:], counted[1:]
    growth = [
        Growth(
            file=line.file,
            line=line.line,
            function=line.function,
            bytes_per_step=sum(step[line] for step in steady) // len(steady),
            count_per_step=sum(step[line] for step in steady_counts) / len(steady),
            bytes=sum(step[line] for step in changed),
        )
        for line in set().union(*steady)
        if all(step[line] > 0 for step in steady)
    ]
    growth.sort(key=lambda grown: (-grown.bytes_per_step, grown.where))
    return Steps(
        count=len(begins) - 1,
        events_per_step=int(median(end - begin for begin, end in pairwise(begins))),
        allocated_bytes_per_step=int(median(step.total() for step in steady)),
        growth=tuple(growth[:top]),
    )


def repetition_of(after: Sequence[Allocation]) -> Repetition | None:
    """What repeats within one call, where no training steps repeat.

    Args:
        after: The changes of the trace, from ``changes``.
    """
    _, begins, within = _repeats(after)
    if len(begins) < _MIN_STEPS + 1:
        return None
    return Repetition(count=len(begins), events=int(median(_gaps(begins))), within=within)


def _after_times(times: Sequence[int], after: Sequence[Allocation], trace: Sequence[TraceEntry]) -> list[int]:
    """Index of the first change behind each time."""
    begins, waiting = [], sorted(times)
    for at, change in enumerate(after):
        time = trace[change.event].time_us
        if time is not None and waiting and time > waiting[0]:
            begins.append(at)
            while waiting and time > waiting[0]:
                waiting.pop(0)
    return begins


def _repeats(after: Sequence[Allocation]) -> tuple[list[int], list[int], str]:
    """Where steps begin; and where what repeats within one call begins, and that call."""
    inner: tuple[list[int], str] = ([], "")
    for key in _KEYS:
        places: dict[Hashable, list[int]] = {}
        for at, change in enumerate(after):
            if change.bytes > 0:
                places.setdefault(key(change), []).append(at)
        regular = [found for found in places.values() if _is_regular(found, len(after))]
        counts = Counter(len(found) for found in regular)
        # Of the steps that most agree on; an inner loop would repeat more often, with fewer stacks taking part.
        for count in sorted(counts, key=lambda count: (-counts[count], count)):
            begins = min((found for found in regular if len(found) == count), key=lambda found: found[0])
            within = _call_around(change.stack for change in after[begins[0] : begins[-1]] if change.bytes > 0)
            if within is None:
                return begins, *inner
            if not inner[0]:
                inner = begins, within
    return [], *inner


def _is_regular(found: list[int], total: int) -> bool:
    if len(found) < _MIN_STEPS + 1:
        return False
    gaps = list(_gaps(found))
    middle = median(gaps)
    even = all(abs(gap - middle) <= 0.1 * middle + 1 for gap in gaps[1:])
    return even and found[-1] - found[0] >= 0.5 * total and total - found[-1] <= 1.5 * middle + 1


def _gaps(found: list[int]) -> Iterator[int]:
    return (after - before for before, after in pairwise(found))


def _call_around(stacks: Iterable[Stack]) -> str | None:
    """The call of a forward or into torch in which all of it happened: layers of a model, nodes of a graph.

    Then what repeats are not steps, and what stays alive is no leak but activations and gradients.
    """
    distinct = {id(stack): stack for stack in stacks}.values()
    if all(_is_backward(stack) for stack in distinct):
        return "backward"
    shared: list[Frame] | None = None
    for stack in distinct:
        outer = [frame for frame in reversed(stack) if frame.filename.endswith(".py")]
        if shared is None:
            shared = outer
            continue
        same = 0
        while same < min(len(shared), len(outer)) and shared[same] == outer[same]:
            same += 1
        shared = shared[:same]
    inside = [f for f in shared or () if f.name == "forward" or _INSIDE_TORCH.search(f.filename)]
    if not inside:
        return None
    called = next((frame for frame in reversed(shared or ()) if not _INSIDE_TORCH.search(frame.filename)), inside[-1])
    return f"{called.filename}:{called.line} in {called.name}"


def _is_backward(stack: Stack) -> bool:
    return not any(f.filename.endswith(".py") for f in stack) and any(
        "torch::autograd::Engine" in f.name for f in stack
    )
