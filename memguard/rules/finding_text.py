"""Words of a finding: place, sizes, whether it matters at the peak; and what an out-of-memory error proved."""

from __future__ import annotations

from typing import Final

from memguard.records.claims import Claim, Evidence
from memguard.records.facts import NOWHERE, Fact, Place, RanOutOfMemory
from memguard.records.findings import Severity
from memguard.records.stats import BatchRecord, Run
from memguard.rules.interface import Rule
from memguard.text.places import place_text
from memguard.text.units import format_bytes
from memguard.thresholds import much_of

REMEDY_OF_NUMBERS: Final = "store loss.item(), or a copy of the number alone: loss.detach().clone()."
"""Of tensors with one number each and the storage of what it was computed from."""


def at(place: Place) -> str:
    """A place in words: ``train.py:41 in main()``, or an empty text."""
    if place.file is None:
        return ""
    where = place_text(place.file, place.line)
    named = place.function and not place.function.startswith("<")
    return f"{where} in {place.function}()" if named else where


MOST_LINES = 3
"""Further lines that are named."""


def holder(place: Place, otherwise: str = "something") -> str:
    """Who holds it: ```losses` (train.py:41 in main(), and line 43)``, and where the loop calls what fills it."""
    name, where = f"`{place.holder}`" if place.holder else otherwise, at(place)
    if place.also:
        where += f", and line{'s' if len(place.also) > 1 else ''} {', '.join(map(str, place.also[:MOST_LINES]))}"
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


def from_post_mortem(rule: Rule, fact: Fact, cause: str) -> Claim | None:
    """The claim of the rule that an out-of-memory error proved right, if its cause is the rule's own.

    A leak of another rule's kind is not: what keeps graphs is MG101's or MG102's. An error that the program caught is
    told without alarm: searching for a batch size means to run out.
    """
    if not isinstance(fact, RanOutOfMemory) or fact.cause != cause or fact.rule not in (None, rule.code):
        return None
    severity = Severity.INFO if fact.caught else Severity.CRITICAL
    return rule.claim(
        fact,
        severity,
        f"memory ran out. {fact.why}",
        fact.advice,
        nbytes=fact.bytes,
        name=fact.holder,
        evidence=Evidence.GROWTH if cause == "leak" else Evidence.OTHER,
    )


SO_FAR: Final = " so far"


def so_far(run: Run) -> str:
    """What is added to a figure that goes on growing; nothing at the end, whose figures are final."""
    return "" if run.ended else SO_FAR


def severity_at_peak(nbytes: int, peak_bytes: int | None) -> Severity:
    """How much it matters that so many bytes are there for nothing when the peak comes."""
    return Severity.WARNING if nbytes >= much_of(peak_bytes or 0) else Severity.INFO


def of_peak(nbytes: int, peak_bytes: int | None) -> str:
    """``2.0 GiB of a peak of 12.0 GiB``, as far as that is known."""
    return format_bytes(nbytes) + (f" of a peak of {format_bytes(peak_bytes)}" if peak_bytes else "")


def is_on_host(run: Run) -> bool:
    """Whether the guarded device is the host itself, where "keep it on the CPU" helps nobody."""
    return run.device in ("cpu", "auto")


def in_memory(run: Run) -> str:
    """Where what is told of lies."""
    return "in memory" if is_on_host(run) else "on the device"


def call_of(record: BatchRecord, run: Run) -> Place:
    """Where the record's stage calls its model: for findings that rest on allocator statistics alone."""
    return run.calls.get(record.stage, NOWHERE)


def called(record: BatchRecord, run: Run) -> str:
    """The same in brackets: `` (the model is called at train.py:33 in main())``; empty where it is not known."""
    place = call_of(record, run)
    return f" (the model is called at {at(place)})" if place.line is not None else ""
