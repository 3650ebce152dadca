"""Which rules a run has, by code or name, and which of them need a record."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import final

from memguard.options import did_you_mean
from memguard.records.stats import BatchRecord, Run
from memguard.rules.explanation import ACTS, Explanation
from memguard.rules.interface import CROWDED, DEVICE, EVERY, PEAKS, READINGS, RETRIES, Rule


def choose(
    detectors: tuple[type[Rule], ...], rules: Iterable[str] | None = None, ignore: Iterable[str] = ()
) -> tuple[type[Rule], ...]:
    """The rules selected and not ignored, in the order of their codes.

    Args:
        detectors: All rules.
        rules: Codes or names to select; None selects all. A prefix like ``"MG3"`` selects its family.
        ignore: Codes, names or prefixes to leave out.

    Raises:
        ValueError: A rule of that code or name does not exist; the text names the valid ones.
    """
    chosen = set(detectors) if rules is None else {kind for text in rules for kind in find(detectors, text)}
    left_out = {kind for text in ignore for kind in find(detectors, text)}
    return tuple(kind for kind in detectors if kind in chosen and kind not in left_out)


def find(detectors: tuple[type[Rule], ...], text: str) -> list[type[Rule]]:
    """The rules that a code, a name or a code's prefix means; none where it means an act of memguard's own.

    Raises:
        ValueError: There is neither a rule nor an act of that code or name; the text names the valid ones.
    """
    wanted = text.strip()
    if find_act(wanted) is not None:
        return []
    found = [kind for kind in detectors if wanted.upper() == kind.code or wanted.lower() == kind.name]
    if not found and len(wanted) > 2 and wanted.upper().startswith("MG"):
        found = [kind for kind in detectors if kind.code.startswith(wanted.upper())]
    if not found:
        acts, rules = [(act.code, act.name) for act in ACTS], [(kind.code, kind.name) for kind in detectors]
        valid = ", ".join(f"{code} {name}" for code, name in acts + rules)
        near = did_you_mean(wanted.lower(), [name for _, name in acts + rules])  # codes are all near each other
        raise ValueError(f"there is no rule {text!r}{near}; the rules are {valid}")
    return found


def find_act(text: str) -> Explanation | None:
    """The act of memguard's own that a code or name means."""
    wanted = text.strip()
    return next((act for act in ACTS if wanted.upper() == act.code or wanted.lower() == act.name), None)


def codes_of(detectors: tuple[type[Rule], ...], texts: Iterable[str]) -> frozenset[str]:
    """The codes that codes, names or codes' prefixes mean, of rules and of memguard's own acts.

    Raises:
        ValueError: As `find`.
    """
    codes = {kind.code for text in texts for kind in find(detectors, text)}
    return frozenset(codes.union(act.code for text in texts if (act := find_act(text)) is not None))


FULL = 0.8
"""Share of the device from which on it counts as nearly full."""

Observer = tuple[str, Rule]
"""A rule, after its name among memguard's parts."""


def part_of(rule: Rule) -> str:
    """What a rule is called where parts of memguard are switched off."""
    return f"rule {rule.code}"


@final
class Subscriptions:
    """Sorts records by what they tell.

    Args:
        detectors: The rules, in the order in which they are to see a record.
    """

    def __init__(self, detectors: Sequence[Rule]) -> None:
        self._observing = [d for d in detectors if type(d).observe is not Rule.observe]
        self._observers: dict[int, tuple[Observer, ...]] = {}
        self._peak = -1
        self._slow: object = None
        self._was_crowded = False

    def of(self, record: BatchRecord, run: Run) -> tuple[Observer, ...]:
        """The rules that hear of a record; call it for each, in order.

        Of a series only for the first two: who does not hear of the second hears of none after it.
        """
        told = EVERY
        if record.allocated_end_bytes is not None or record.device_used_bytes is not None:
            told = DEVICE
        peak = record.allocated_peak_bytes
        if peak is not None and peak > self._peak:
            self._peak = peak
            told |= PEAKS
        if run.slow is not self._slow:
            self._slow = run.slow
            told |= READINGS
        if record.num_alloc_retries:
            told |= RETRIES
        crowded = _is_crowded(record, run)
        if crowded or self._was_crowded:
            self._was_crowded = crowded
            told |= CROWDED
        observers = self._observers.get(told)
        if observers is None:
            observers = self._observers[told] = tuple(
                (part_of(d), d) for d in self._observing if d.hears == EVERY or d.hears & told
            )
        return observers


def _is_crowded(record: BatchRecord, run: Run) -> bool:
    """Whether what was reserved at the peak, and what others held, nearly fill the device, or this process's share."""
    total_bytes, limit = run.device_total_bytes, run.limit_bytes
    if not total_bytes:
        return False
    held, used = record.reserved_peak_bytes or record.allocated_peak_bytes or 0, record.device_used_bytes
    if limit is not None and held > FULL * limit:
        return True
    if used is not None and record.reserved_bytes is not None and used > record.reserved_bytes:
        held += used - record.reserved_bytes
    return held > FULL * total_bytes
