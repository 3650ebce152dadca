"""MG303, MG304, MG305 and MG313: variables that live longer than needed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import final

from memguard.records.claims import Claim, Evidence
from memguard.records.facts import Fact, LargeLocals, PreviousOutputsAlive, ReboundTensor, UnreadStorages
from memguard.records.findings import Severity
from memguard.records.stats import Run, limit_of, room_of
from memguard.rules.finding_text import holder, in_code, of_peak, plural, severity_at_peak
from memguard.rules.interface import Rule
from memguard.text.units import format_bytes
from memguard.thresholds import least_of_device, some_of

LITTLE_ROOM = 0.10


def _matters(nbytes: int, run: Run, peak: int) -> bool:
    """Whether so many bytes are worth a word: a part of the peak, 3 % of the device, or 64 MiB of an unknown one."""
    return (peak > 0 and nbytes >= some_of(peak)) or nbytes >= least_of_device(limit_of(run))


@final
class PreviousBatchAlive(Rule, code="MG303", name="previous-batch-alive", evidence=Evidence.PEAK):
    """Outputs of the last batch are alive during the next forward, and raise its peak.

    What: in ``for batch in loader: out = model(batch); ...`` the name ``out`` (or ``loss``) still refers to the last
    batch's tensors while the next forward runs; or an attribute does (``self.last = out.detach()``).

    Why it matters: two batches' outputs are in memory at the peak; with a graph that was not freed, two graphs.

    How to fix: ``del out, loss`` at the end of the loop's body, or put the step into a function of its own.
    """

    def __init__(self) -> None:
        self._seen = 0

    def learn(self, fact: Fact, run: Run) -> Iterable[Claim]:
        """Concludes where it is much, in more than one batch, and the peak comes where it adds to it."""
        if not isinstance(fact, PreviousOutputsAlive):
            return
        if fact.peak_in_forward is False and not fact.until_backward and not fact.until_peak:
            return
        limit = limit_of(run)
        if not _matters(fact.bytes, run, fact.peak_bytes or 0):
            return
        self._seen += 2 if fact.steady else 1
        if self._seen < 2:
            return
        left = room_of(run)
        near = left is not None and limit is not None and left < LITTLE_ROOM * limit
        # What is there until the backward may be wanted there, as an earlier output that the loss compares with.
        matters = fact.bytes >= least_of_device(limit) and near and fact.peak_in_forward is not False
        yield self.claim(
            fact,
            Severity.WARNING if matters else Severity.INFO,
            f"{holder(fact.place)} still holds {format_bytes(fact.bytes)} of the last batch while the next forward "
            "runs: both are in memory at the peak.",
            _let_go(in_code(fact.place), *fact.beside),
            nbytes=fact.bytes,
            is_limited=fact.peak_in_forward is False,  # it may be wanted there, whatever room it takes
        )


def _drop(name: str | None) -> str:
    return f"set {name} = None" if name is not None and "." in name else f"del {name or 'it'}"


def _let_go(name: str | None, *beside: str) -> str:
    if name is not None and "." in name:
        return f"keep there only what is read later (numbers), or set {name} = None before the next forward."
    return f"del {', '.join((name or 'it', *beside))} at the end of the loop's body, or put the step into a function."


@final
class LocalsAlive(Rule, code="MG304", name="locals-alive", evidence=Evidence.PEAK):
    """Large local variables are alive at the peak though they are not read again.

    What: a function holds tensors in variables that its remaining lines never use, while the peak comes: in backward
    or in the optimizer's step.

    Why it matters: a variable keeps its tensor until the function returns, however early its last use was.

    How to fix: ``del`` the variables after their last use, or split the function.
    """

    def learn(self, fact: Fact, run: Run) -> Iterable[Claim]:
        """Concludes where it is much."""
        if not isinstance(fact, LargeLocals) or not _matters(fact.bytes, run, fact.peak_bytes or 0):
            return
        names = ", ".join(fact.names[:5])
        function = fact.place.function or "the function"
        where, split = f"{function}()", "split the function"
        if function == "<module>":
            where, split = "the script", "put that part into a function"
        of_peak = f", of a peak of {format_bytes(fact.peak_bytes)}" if fact.peak_bytes else ""
        yield self.claim(
            fact,
            Severity.INFO,
            f"{names} ({format_bytes(fact.bytes)}{of_peak}) {'is' if len(fact.names) == 1 else 'are'} alive in "
            f"{where} at the {fact.at}, and nothing below reads "
            f"{'it' if len(fact.names) == 1 else 'them'}.",
            f"del {', '.join(name if name.isidentifier() else '_' for name in fact.names[:5])} after the last use, or "
            f"{split}.",
            nbytes=fact.bytes,
            name=names,
        )


@final
class RebindDoubles(Rule, code="MG305", name="rebind-doubles", evidence=Evidence.PEAK):
    """A tensor is made again before the old one is dropped.

    What: ``x = f(x)`` or ``buffer = torch.zeros(...)`` under a name that already holds a large tensor, in a batch or
    between epochs; a loop over folds or trials that makes its next model under the name of the last.

    Why it matters: the right side is computed while the name still holds the old tensor, so both exist for a moment:
    at the peak the memory counts twice.

    How to fix: write in place (``x.add_(1)``, ``out=``) where autograd allows it, or ``del x`` first.
    """

    def learn(self, fact: Fact, run: Run) -> Iterable[Claim]:
        """Concludes where it is a part of the peak."""
        peak = run.peak_bytes or 0
        if not isinstance(fact, ReboundTensor) or not peak or fact.bytes < some_of(peak):
            return
        yield self.claim(
            fact,
            Severity.INFO,
            f"{holder(fact.place)} is made again ({format_bytes(fact.bytes)}) while the old one is alive: "
            + (
                "two models, and the old one's gradients and optimizer state."
                if fact.model
                else f"{plural(2, 'copy')} at the peak of {format_bytes(peak)}."
            ),
            f"{'' if fact.model else 'write in place, or '}{_drop(in_code(fact.place))} first"
            f"{', and its optimizer' if fact.model else ''}.",
            nbytes=fact.bytes,
        )


@final
class UnreadInTraining(Rule, code="MG313", name="unread-in-training", evidence=Evidence.PEAK):
    """Memory of another phase is kept through training though nothing reads it there.

    What: a roll-out leaves the keys and values of its generation (``past_key_values``), merged adapter weights or a
    received copy of the weights in an attribute. The forwards and backwards of training run beside them, no operator
    reads them, and the next roll-out drops or replaces them unread. memguard sees this on the virtual device, where it
    sees what each operator takes; on a GPU it reports some of them as MG303 and MG308.

    Why it matters: training sets the peak, and they are in it for nothing.

    How to fix: set the attribute to None where its phase ends (``self.past = None``), keep only what is read later
    (``output.sequences``), or move it to the CPU.
    """

    def learn(self, fact: Fact, run: Run) -> Iterable[Claim]:
        """Concludes from what went unread."""
        if not isinstance(fact, UnreadStorages) or fact.within_step:
            return
        part = f"{fact.place.holder}.{fact.inside}" if fact.inside and fact.place.holder else None
        keep = f"do not keep {part} for longer than it is read" if part else "keep there only what is read later"
        yield self.claim(
            fact,
            severity_at_peak(fact.bytes, fact.peak_bytes),
            f"{holder(fact.place)} kept {of_peak(fact.bytes, fact.peak_bytes)}{f' in {part}' if part else ''} "
            f"through {plural(fact.forwards, 'forward')} of training: nothing read them there, and they went unread.",
            fact.remedy or f"{keep}, or {_drop(in_code(fact.place))} before training goes on.",
            nbytes=fact.bytes,
        )
