"""How a rule says what it found: places in words, findings from facts, severity from what is still free."""

from __future__ import annotations

from typing import final

from memguard.detectors.interface import Detector
from memguard.facts import NOWHERE, Fact, Place, RanOutOfMemory
from memguard.findings import Finding, Severity
from memguard.places import place_text
from memguard.stats import BatchRecord, Run

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


def from_fact(
    rule: Detector,
    fact: Fact,
    run: Run,
    severity: Severity,
    message: str,
    advice: str,
    *,
    nbytes: int | None = None,
    bytes_per_batch: float | None = None,
    name: str | None = None,
) -> Finding:
    """A finding at the place of a fact.

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
    """
    place = fact.place
    return Finding(
        code=rule.code,
        name=rule.name,
        severity=severity,
        message=message,
        advice=advice,
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
    )


def from_record(
    rule: Detector,
    record: BatchRecord,
    run: Run,
    severity: Severity,
    message: str,
    advice: str,
    *,
    nbytes: int | None = None,
    bytes_per_batch: float | None = None,
    place: Place = NOWHERE,
) -> Finding:
    """A finding that rests on the records alone; the arguments are those of `from_fact`, and where batches are made."""
    return Finding(
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
        rank=run.rank,
    )


def from_post_mortem(rule: Detector, fact: Fact, run: Run, cause: str) -> Finding | None:
    """The finding of the rule that an out-of-memory error proved right, if its cause is the rule's own.

    A leak of another rule's kind is not: what keeps graphs is MG101's or MG102's. An error that the program caught is
    told without alarm: searching for a batch size means to run out.
    """
    if not isinstance(fact, RanOutOfMemory) or fact.cause != cause or fact.rule not in (None, rule.code):
        return None
    severity = Severity.INFO if fact.caught else Severity.CRITICAL
    return from_fact(
        rule, fact, run, severity, f"memory ran out. {fact.why}", fact.advice, nbytes=fact.bytes, name=fact.holder
    )


@final
class Room:
    """What is left of the device above the highest peak seen lately."""

    __slots__ = ("_peak",)

    def __init__(self) -> None:
        self._peak: int | None = None

    def observe(self, record: BatchRecord) -> None:
        """Learns one more peak."""
        if record.allocated_peak_bytes is not None and record.allocated_peak_bytes > (self._peak or 0):
            self._peak = record.allocated_peak_bytes

    def left(self, run: Run) -> int | None:
        """Bytes between the highest peak and the limit; None where either is unknown."""
        limit = limit_of(run)
        return None if limit is None or self._peak is None else max(limit - self._peak, 0)

    def severity(self, run: Run, bytes_per_batch: float | None, batches_left: int | None) -> Severity:
        """Critical if so much more with every batch will not fit, else a warning."""
        left, batches = self.left(run), run.batches_left if batches_left is None else batches_left
        if left is None or batches is None or not bytes_per_batch:
            return Severity.WARNING
        return Severity.CRITICAL if bytes_per_batch * batches > left else Severity.WARNING


def is_some_of_peak(nbytes: int, peak_bytes: int) -> bool:
    """Whether so many bytes are worth a remark for what they add to a peak, however large the device is."""
    return nbytes >= max(SOME_OF_PEAK * peak_bytes, LEAST_REMARK)


def limit_of(run: Run) -> int | None:
    """What the process may take of the device."""
    return run.limit_bytes if run.limit_bytes is not None else run.device_total_bytes


def is_on_host(run: Run) -> bool:
    """Whether the guarded device is the host itself, where "keep it on the CPU" helps nobody."""
    return run.device in ("cpu", "auto")


def in_memory(run: Run) -> str:
    """Where what is told of lies."""
    return "in memory" if is_on_host(run) else "on the device"
