"""Words of a finding: place, sizes, fix; and its severity from what is still free."""

from __future__ import annotations

from typing import final

from memguard.records.claims import Claim, Evidence
from memguard.records.facts import NOWHERE, Fact, ModelCalled, Place, RanOutOfMemory
from memguard.records.findings import Severity
from memguard.records.stats import BatchRecord, Run, Stage
from memguard.rules.interface import Rule
from memguard.text.places import place_text

SOME_OF_PEAK, LEAST_REMARK = 0.05, 256 * 1024
"""Of a batch's peak: less is not even remarked on; as the probes measure (`probes.worth`), which no rule may import."""


def at(place: Place) -> str:
    """A place in words: ``train.py:41 in main()``, or an empty text."""
    if place.file is None:
        return ""
    where = place_text(place.file, place.line)
    named = place.function and not place.function.startswith("<")
    return f"{where} in {place.function}()" if named else where


def holder(place: Place, otherwise: str = "something") -> str:
    """Who holds it, in words: ```losses` (train.py:41 in main())``, and where the loop calls what fills it."""
    name, where = f"`{place.holder}`" if place.holder else otherwise, at(place)
    if place.caller is not None:
        where += f", called at {place.caller}"
    return f"{name} ({where})" if where else name


def in_code(place: Place) -> str | None:
    """The holder as the statement writes it: an attribute of ``self`` is told by its class elsewhere."""
    if place.holder is None:
        return None
    own = f"self.{place.holder.rpartition('.')[2]}"
    return own if own in (place.source or "") else place.holder


def plural(number: int, noun: str) -> str:
    """``"1 batch"``, ``"3 batches"``."""
    if number == 1:
        return f"{number} {noun}"
    if noun.endswith("y"):
        return f"{number} {noun[:-1]}ies"
    return f"{number} {noun}" + ("es" if noun.endswith(("ch", "s", "x")) else "s")


def counted(fact: Fact, number: int, noun: str) -> str:
    """The same of what a fact counts: ``"about 3 models"`` where nobody counted since the last look."""
    return f"{'about ' if fact.estimated else ''}{plural(number, noun)}"


_OF_FRAME = (
    "do not keep the frame, for it keeps every variable of its function: store what is read of it, like "
    "frame.f_lineno and frame.f_code.co_name."
)


def from_fact(
    rule: Rule,
    fact: Fact,
    run: Run,
    severity: Severity,
    message: str,
    advice: str,
    *,
    nbytes: int | None = None,
    bytes_per_batch: float | None = None,
    name: str | None = None,
    evidence: Evidence = Evidence.OTHER,
    count: int = 1,
    since: int | None = None,
    batches_left: int | None = None,
    is_limited: bool = False,
    ends: bool = False,
    names: tuple[str, ...] = (),
) -> Claim:
    """A claim at the place of a fact.

    Args:
        rule: The rule that concludes.
        fact: Its evidence.
        run: The run.
        severity: How much it matters.
        message: What happened and why it matters.
        advice: The fix.
        nbytes: Bytes it concerns.
        bytes_per_batch: How fast they grow.
        name: The holder, where it is not the place's.
        evidence: What kind of memory it is about.
        count: Graphs, tensors or copies that it tells of.
        since: Batch from which on they came.
        batches_left: Batches to come that bring more, where known.
        is_limited: Whether it will never be more than there is room for.
        ends: Whether it is let go where the pass over the data ends.
        names: Other names that hold the same memory.
    """
    place = fact.place
    return Claim(
        code=rule.code,
        name=rule.name,
        severity=severity,
        message=message,
        advice=_OF_FRAME if place.in_frame else advice,
        file=place.file,
        line=place.line,
        function=place.function,
        holder=name or place.holder,
        stage=fact.stage,
        epoch=run.epoch,
        batch=fact.batch,
        bytes=nbytes,
        bytes_per_batch=bytes_per_batch,
        rank=run.rank,
        evidence=evidence,
        count=count,
        since=since,
        batches_left=batches_left,
        is_limited=is_limited,
        ends=ends,
        names=names,
    )


def from_record(
    rule: Rule,
    record: BatchRecord,
    run: Run,
    severity: Severity,
    message: str,
    advice: str,
    *,
    nbytes: int | None = None,
    bytes_per_batch: float | None = None,
    since: int | None = None,
    place: Place = NOWHERE,
) -> Claim:
    """A claim that rests on the records alone; the arguments are those of `from_fact`, and where batches are made."""
    return Claim(
        code=rule.code,
        name=rule.name,
        severity=severity,
        message=message,
        advice=advice,
        file=place.file,
        line=place.line,
        function=place.function,
        stage=record.stage,
        epoch=record.epoch,
        batch=record.batch,
        bytes=nbytes,
        bytes_per_batch=bytes_per_batch,
        since=since,
        rank=run.rank,
    )


def from_post_mortem(rule: Rule, fact: Fact, run: Run, cause: str) -> Claim | None:
    """The claim of the rule that an out-of-memory error proved right, if its cause is the rule's own.

    A leak of another rule's kind is not: what keeps graphs is MG101's or MG102's. An error that the program caught is
    told without alarm: searching for a batch size means to run out.
    """
    if not isinstance(fact, RanOutOfMemory) or fact.cause != cause or fact.rule not in (None, rule.code):
        return None
    severity = Severity.INFO if fact.caught else Severity.CRITICAL
    return from_fact(
        rule,
        fact,
        run,
        severity,
        f"memory ran out. {fact.why}",
        fact.advice,
        nbytes=fact.bytes,
        name=fact.holder,
        evidence=Evidence.GROWTH if cause == "leak" else Evidence.OTHER,
    )


def so_far(run: Run) -> str:
    """What is added to a figure that goes on growing; nothing at the end, whose figures are final."""
    return "" if run.ended else " so far"


def is_some_of_peak(nbytes: int, peak_bytes: int) -> bool:
    """Whether so many bytes are worth a remark for what they add to a peak, however large the device is."""
    return nbytes >= max(SOME_OF_PEAK * peak_bytes, LEAST_REMARK)


def is_on_host(run: Run) -> bool:
    """Whether the guarded device is the host itself, where "keep it on the CPU" helps nobody."""
    return run.device in ("cpu", "auto")


def in_memory(run: Run) -> str:
    """Where what is told of lies."""
    return "in memory" if is_on_host(run) else "on the device"


@final
class Calls:
    """Lines that call the model, the first of each stage: for findings that rest on allocator statistics alone."""

    def __init__(self) -> None:
        self._places: dict[Stage, Place] = {}

    def learn(self, fact: Fact) -> None:
        """Takes note of a call."""
        if isinstance(fact, ModelCalled):
            self._places.setdefault(fact.stage, fact.place)

    def of(self, record: BatchRecord) -> Place:
        """Where the record's stage calls its model; nowhere where that is not known."""
        return self.in_stage(record.stage)

    def in_stage(self, stage: Stage) -> Place:
        """Likewise of a stage."""
        return self._places.get(stage, NOWHERE)

    def text(self, record: BatchRecord) -> str:
        """The same in brackets: `` (the model is called at train.py:33 in main())``; empty where it is not known."""
        place = self.of(record)
        return f" (the model is called at {at(place)})" if place.line is not None else ""
