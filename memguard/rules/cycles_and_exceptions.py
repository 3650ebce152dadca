"""MG306 and MG307: reference cycles and exceptions that keep tensors."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import final

from memguard.records.claims import Claim, Evidence
from memguard.records.facts import ExceptionHolds, Fact, FreedByCollector, FunctionContextHolds
from memguard.records.findings import Severity
from memguard.records.stats import Run, limit_of
from memguard.rules.finding_text import at, holder, plural
from memguard.rules.interface import Rule
from memguard.text.units import format_bytes

MIN_SHARE = 0.01
MIN_GRAPHS = 3


@final
class ReferenceCycle(Rule, code="MG306", name="reference-cycle"):
    """Tensors are freed only by the garbage collector.

    What: objects that refer to each other in a circle hold tensors, so that reference counting never frees them: an
    object that stores a closure over itself, an exception in a local variable, a parent that its child refers to.

    Why it matters: the collector runs when enough Python objects were made; it knows nothing of gigabytes on a device.
    Memory rises in a saw-tooth, or without end where the collector is switched off.

    How to fix: break the circle at the name in the message (set it to None, use ``weakref``, take ``self`` out of the
    closure), or call ``gc.collect()`` at fixed intervals.
    """

    def __init__(self) -> None:
        self._graphs = 0
        self._looks = 0
        self._told: list[FreedByCollector] = []
        self._context = False
        """Whether a context that keeps its own output was told (MG105): what a circle without a name is then."""

    def learn(self, fact: Fact, run: Run) -> Iterable[Claim]:
        """Concludes at the second look with much memory, or with graphs of several batches."""
        if isinstance(fact, FunctionContextHolds):
            self._context = self._context or fact.cycle
        if not isinstance(fact, FreedByCollector):
            return
        if self._context and fact.is_collected and fact.cycle is None and fact.place.line is None:
            return
        self._looks += 1
        self._graphs += fact.graphs
        total = limit_of(run)
        much = fact.bytes is not None and total is not None and fact.bytes >= MIN_SHARE * total
        proven = fact.outputs or fact.circles
        if self._graphs < MIN_GRAPHS and not proven and not (much and self._looks >= 2):
            return
        fact = self._as_told(fact)
        size = f" and {format_bytes(fact.bytes)}" if fact.bytes else ""
        cycle = f": {fact.cycle}" if fact.cycle else ""
        where = at(fact.place)
        what = f"the graphs of {plural(max(self._graphs, fact.graphs), 'forward')}"
        if fact.outputs:
            what = plural(fact.outputs, "tensor")
        held = f"; a circle of references {'held' if fact.is_collected else 'holds'} them"
        if fact.circles:
            what, size, held = f"{plural(fact.circles, 'circle')} of references with {format_bytes(fact.bytes)}", "", ""
        by = "were freed by the garbage collector only"
        if not fact.is_collected:
            by = "can be freed by the garbage collector only, which is switched off in this process"
        yield self.claim(
            fact,
            Severity.WARNING if fact.is_collected else Severity.CRITICAL,
            f"{what}{size} {by}{held}{cycle}{f' ({where})' if where else ''}.",
            f"break the circle{f' at {fact.place.holder}' if fact.place.holder else ''}: set it to None when done, "
            "or use weakref; as a stopgap, call gc.collect() every few batches.",
            nbytes=fact.bytes,
            evidence=Evidence.OTHER if fact.is_collected else Evidence.GROWTH,
            name=fact.place.holder or fact.cycle,
        )

    def _as_told(self, fact: FreedByCollector) -> FreedByCollector:
        """The fact at the line where a circle through the same classes was told before: one cause, one message."""
        for told in self._told:
            if set(told.parts) & set(fact.parts) and told.place.file == fact.place.file:
                return replace(fact, place=told.place, cycle=told.cycle)
        self._told.append(fact)
        return fact


@final
class ExceptionKeeps(Rule, code="MG307", name="exception-holds", evidence=Evidence.HELD):
    """An exception or traceback keeps a failed step's tensors.

    What: a forward runs inside the ``except`` block that handles an out-of-memory error, or the exception was stored.

    Why it matters: an exception refers to its traceback, the traceback to the frames, the frames to their variables:
    all tensors of the failed step stay alive, so the retry has less room than the first attempt.

    How to fix: set a flag in the ``except`` block, leave it, and retry outside; store ``str(error)`` instead of the
    error, or set ``error.__traceback__ = None``.
    """

    def learn(self, fact: Fact, run: Run) -> Iterable[Claim]:
        """Concludes from an error that is being handled while a forward runs, or that somebody keeps."""
        if not isinstance(fact, ExceptionHolds):
            return
        names = f" ({', '.join(fact.names[:6])})" if fact.names else ""
        size = f", {format_bytes(fact.bytes)}," if fact.bytes else ""
        where = at(fact.place)
        if fact.handling:
            message = (
                f"a forward runs while {fact.exception} is being handled{f' ({where})' if where else ''}: the "
                f"exception keeps the failed step's tensors{size} alive{names}, 1 step more than there is room for."
            )
            advice = "set a flag in the except block, leave it, and run the retry outside."
        else:
            message = (
                f"{holder(fact.place)} keeps {fact.exception} with its traceback, and with it {len(fact.names)} "
                f"variables of the failed step{size} alive{names}."
            )
            advice = "store str(error) instead of the error, or set error.__traceback__ = None."
        yield self.claim(
            fact,
            Severity.WARNING if fact.handling or fact.bytes else Severity.INFO,
            message,
            advice,
            nbytes=fact.bytes or None,
            names=fact.names,
        )
