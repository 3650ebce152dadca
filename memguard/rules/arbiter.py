"""The arbiter turns claims into findings: one for each cause, severity by share of the device, newest numbers.

Rules know nothing of each other. Here a byte is explained once: by the most specific claim, then by the one that names
its holder most nearly. The order in which claims come does not matter to what is told at the end.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, final

from memguard.allowing import allowed
from memguard.records.claims import Claim, Evidence
from memguard.records.findings import Finding, Severity
from memguard.records.stats import Run, limit_of, room_of
from memguard.thresholds import ALIKE, EXPLAINED, LARGE_SHARE, NOTABLE_SHARE, PEAK_SHARE, WORD_BYTES, WORD_SHARE

Cause = tuple[str, str | None, int | None, str | None]


class Relation(enum.Enum):
    """How two claims must lie to each other for one to explain the other's memory."""

    LINE = "the same line of the same stage, and no other holder"
    PLACE = "the same line of the same stage, whatever holds it"
    HOLDER = "the same holder"
    NAMED = "a name that the first one counts among its own"


GROWTH_CODE: Final = "MG501"
"""What tells of the curve, where nobody is known who keeps at least half of what it rose by."""
_STORED: Final = dict.fromkeys(("MG301", "MG302", "MG303", "MG501"), Relation.LINE)
"""Of a statement that stores graphs, its tensors, views and growth are the same memory."""
SUPERSEDES: Final[Mapping[str, Mapping[str, Relation]]] = {
    "MG101": {**_STORED, "MG106": Relation.LINE},
    "MG102": {**_STORED, "MG101": Relation.LINE, "MG106": Relation.LINE},
    "MG106": {**_STORED, "MG103": Relation.HOLDER, "MG201": Relation.PLACE},
    "MG201": {"MG001": Relation.HOLDER},
    "MG301": {"MG303": Relation.LINE, "MG313": Relation.HOLDER},
    "MG302": {"MG301": Relation.LINE, "MG303": Relation.LINE, "MG501": Relation.LINE},
    "MG303": {"MG305": Relation.LINE},
    "MG305": {"MG304": Relation.LINE},
    "MG308": {"MG301": Relation.HOLDER, "MG313": Relation.HOLDER, "MG501": Relation.HOLDER},
    "MG704": {"MG701": Relation.HOLDER},
    "MG313": {"MG303": Relation.HOLDER, "MG304": Relation.HOLDER, "MG305": Relation.HOLDER, "MG308": Relation.HOLDER},
    "MG307": {"MG313": Relation.HOLDER, "MG301": Relation.PLACE, "MG303": Relation.NAMED, "MG304": Relation.NAMED},
}
"""Which rule's word goes before which other's, and where both must be found for that."""


STAYS: Final = frozenset({Evidence.GROWTH, Evidence.HELD})
"""What a floor of allocated memory rises by: more of it comes, or it came once and is held."""


def fills_device(claim: Claim, run: Run) -> bool:
    """Whether what a claim says comes with every batch will not fit before the run, or the pass, is over."""
    room, batches = room_of(run), run.batches_left if claim.batches_left is None else claim.batches_left
    return room is not None and batches is not None and (claim.bytes_per_batch or 0) * batches > room


def severity_of(claim: Claim, run: Run) -> Severity | None:
    """How much a claim matters on this device; None if it is not worth a word.

    What will fill the device in this run is critical, what takes much of it or of the peak is a warning, whether it
    stays or is there for nothing when the peak comes, and what takes a thousandth and does not grow is nothing. A claim
    that is limited to what fits stays what its rule says.
    """
    limit, severity, nbytes = limit_of(run), claim.severity, claim.bytes
    if claim.evidence is Evidence.OTHER:
        return severity
    grows = claim.evidence is Evidence.GROWTH
    most = (nbytes or 0) + (claim.bytes_per_batch or 0) * (claim.batches_left or 0)
    if limit is None or run.device in ("cpu", "auto"):
        is_little = severity is Severity.INFO and claim.ends and nbytes is not None and most < WORD_BYTES
        return None if is_little else severity
    if grows and not claim.is_limited and fills_device(claim, run):
        return Severity.CRITICAL
    if nbytes is None:
        return severity
    if severity is Severity.INFO and (not grows or claim.ends) and most < WORD_SHARE * limit:
        return None
    of_peak = nbytes >= PEAK_SHARE * (run.peak_bytes or limit) and nbytes >= NOTABLE_SHARE * limit
    if not claim.is_limited and (of_peak or nbytes >= LARGE_SHARE * limit):
        severity = max(severity, Severity.WARNING)
    return severity


def supersedes(claim: Claim, other: Claim) -> bool:
    """Whether the first claim explains what the second one tells of."""
    if other.code == GROWTH_CODE and other.evidence is Evidence.OTHER and other.bytes:
        if claim.code == GROWTH_CODE:  # of two words on the curve the one with a line, or else the larger
            return claim.line is not None and other.line is None
        return claim.evidence in STAYS and (claim.bytes or 0) >= EXPLAINED * other.bytes
    nameless = other.holder is None and other.evidence is Evidence.GROWTH
    outweighs = (claim.bytes or 0) >= EXPLAINED * (other.bytes or 0) > 0
    if nameless and claim.holder and claim.evidence in STAYS and outweighs:
        return True  # what grows without a name has this one
    if claim.evidence is Evidence.GROWTH and other.evidence in STAYS and other.holder in claim.names:
        return (claim.bytes or 0) >= (other.bytes or 0)
    relation = SUPERSEDES.get(claim.code, {}).get(other.code)
    if relation is not None and claim.severity is Severity.INFO < other.severity:
        return False  # what is only remarked on takes nobody's word; a warning's finding gets the worse severity
    if relation in (Relation.LINE, Relation.PLACE):
        alike = claim.line is not None and (claim.file, claim.line) == (other.file, other.line)
        held = relation is Relation.PLACE or claim.holder == other.holder or not other.holder
        return alike and claim.stage is other.stage and held and other.evidence is not Evidence.OTHER
    if relation is Relation.HOLDER:
        return claim.holder == other.holder
    if relation is Relation.NAMED:
        return any(_is_name(name, other) for name in claim.names)
    return _is_seen_from_afar(claim, other)


def _is_name(name: str, other: Claim) -> bool:
    """Whether a name like ``step() 'loss'`` is the other claim's holder."""
    function, _, quoted = name.rpartition(" ")
    holders = (other.holder or "").split(", ")
    inside = function.removesuffix("()").rpartition(".")[2]
    return quoted.strip("'") in holders and (not inside or (other.function or "").rpartition(".")[2] == inside)


def _is_seen_from_afar(claim: Claim, other: Claim) -> bool:
    """Whether the second tells of elements as large as those of the first, at most as many, and knows less of them.

    Copies in objects that a list keeps are found by their weights and by the list: the list is what to change. A search
    by weights may meet them in another object first.
    """
    if claim.line is None or other.evidence is not Evidence.HELD:
        return False
    grows, nbytes, others = claim.evidence is Evidence.GROWTH, claim.bytes or 0, other.bytes or 0
    if grows and claim.code == other.code and 0 < EXPLAINED * nbytes <= others <= nbytes:
        return True
    one, each = claim.each_bytes, other.each_bytes
    if one is None or each is None:
        return False
    if abs(each - one) > ALIKE * one or other.count > claim.count + 1:
        return False
    is_vague = other.line is None or (other.is_limited and other.severity is Severity.INFO)
    if grows:
        return is_vague or 2 * others >= nbytes
    return is_vague and claim.evidence is Evidence.HELD and claim.severity > Severity.INFO


def is_beside(claim: Claim, other: Claim) -> bool:
    """Whether two claims of one rule are statements that fill attributes of one object together: a meter's."""
    owned = "." in (claim.holder or "") and "." in (other.holder or "")
    return claim.code == other.code and owned and claim.place.is_beside(other.place)


@dataclass(frozen=True, slots=True)
class Attribution:
    """How a growth of memory divides among claims."""

    explained: Mapping[Cause, int]
    """Bytes by cause, each byte once; a cause that explains nothing is not in it."""
    unexplained: int
    """What is left of the growth."""


def attribute(claims: Iterable[Claim], growth_bytes: int) -> Attribution:
    """Divides a growth among the claims that tell of memory which stays, most specific first.

    Claims at one place explain the same bytes: together no more than the one that says most.

    Args:
        claims: They, in any order, each cause once.
        growth_bytes: By how much the floor of allocated memory rose.
    """
    left, explained = max(growth_bytes, 0), {}
    for group in _by_place(claims):
        best = min(group, key=_rank)
        taken = min(max(claim.bytes or 0 for claim in group), left)
        if taken > 0:
            explained[best.cause] = taken
            left -= taken
    return Attribution(explained, left)


def _by_place(claims: Iterable[Claim]) -> list[list[Claim]]:
    """Claims of memory that stays, those that explain each other together; the most specific group first."""
    staying = sorted((c for c in claims if c.evidence in STAYS and c.bytes), key=_rank)
    groups: list[list[Claim]] = []
    for claim in staying:
        for group in groups:
            if any(_is_one_place(claim, other) for other in group):
                group.append(claim)
                break
        else:
            groups.append([claim])
    return groups


def _is_one_place(claim: Claim, other: Claim) -> bool:
    same = claim.holder is not None and (claim.file, claim.holder) == (other.file, other.holder)
    return same or supersedes(claim, other) or supersedes(other, claim) or is_beside(claim, other)


def _rank(claim: Claim) -> tuple[object, ...]:
    """Most specific first: a rule that goes before others, a line, a holder; then whatever tells causes apart."""
    depth = len(SUPERSEDES.get(claim.code, {}))
    text = (claim.code, claim.file or "", claim.line or 0, claim.holder or "")
    return (claim.line is None, claim.holder is None, -depth, -(claim.bytes or 0), *text)


def settle(claims: Sequence[Claim]) -> list[Claim]:
    """The claims that become findings: none that another one explains, and those side by side as one.

    Args:
        claims: They, each cause once, in the order in which they were first made.
    """
    heads: dict[Cause, Claim] = {}
    for claim in sorted(claims, key=_rank):
        head = next((h for h in heads.values() if is_beside(h, claim) or _beside_names(h, claim)), None)
        if head is None:
            heads[claim.cause] = claim
        else:
            heads[head.cause] = _joined(head, claim)
    order = {claim.cause: number for number, claim in enumerate(claims)}
    left: dict[Cause, Claim] = {}
    for head in heads.values():
        if not any(_yields(head, other) for other in heads.values() if other is not head):
            gone = [o for o in heads.values() if o is not head and supersedes(head, o)]
            explains = dict.fromkeys((*head.explains, *(cause for o in gone for cause in (o.cause, *o.explains))))
            left[head.cause] = replace(head, explains=tuple(explains))
    return sorted(left.values(), key=lambda claim: order[claim.cause])


def _yields(claim: Claim, other: Claim) -> bool:
    """Whether the other claim explains this one; of two that explain each other the more specific one stays."""
    return supersedes(other, claim) and not (supersedes(claim, other) and _rank(claim) < _rank(other))


def _beside_names(head: Claim, claim: Claim) -> bool:
    """Whether a claim lies beside one that was joined to the head before: a third attribute of one object."""
    if head.code != claim.code or head.file != claim.file or head.function != claim.function:
        return False
    owner = (claim.holder or "").rpartition(".")[0]
    return bool(owner) and any(name.rpartition(".")[0] == owner for name in head.names)


def _joined(head: Claim, claim: Claim) -> Claim:
    """One claim of two that stand side by side: the same memory under one more name."""
    name = claim.holder or ""
    also = f" `{name}` (line {claim.line}) keeps the same."
    message = head.message if also in head.message else head.message + also
    return replace(head, message=message, names=(*head.names, name), explains=(*head.explains, claim.cause))


@final
class Arbiter:
    """Turns the claims of a run into its findings.

    Args:
        silenced: Codes of rules and acts whose claims are dropped.
    """

    def __init__(self, silenced: Iterable[str] = ()) -> None:
        self.allowed: frozenset[str] = frozenset()
        """Rules that the program itself allows for the batches that are judged now (`memguard.allow`)."""
        self._silenced = frozenset(silenced)
        self._claims: dict[Cause, Claim] = {}
        self._severity: dict[Cause, Severity] = {}
        """The worst that each cause has been."""
        self._told: dict[Cause, Severity] = {}

    def add(self, claim: Claim, run: Run) -> Finding | None:
        """Takes a claim in; returns what is to be told of it now, None if nothing."""
        if claim.code in self._silenced or claim.code in self.allowed or allowed(claim.code):
            return None
        cause, known = claim.cause, self._claims.get(claim.cause)
        severity = severity_of(claim, run)
        if severity is None and known is None:
            return None
        worst = max(severity or Severity.INFO, self._severity.get(cause, Severity.INFO))
        is_worse = known is not None and worst > self._severity[cause]
        self._severity[cause] = worst
        self._claims[cause] = _newest(known, claim, is_worse=is_worse)
        head = next((c for c in settle(self.claims) if cause in (c.cause, *c.explains)), None)
        if head is None:
            return None
        told, now = self._told.get(head.cause), self._finding(head)
        if told is not None and now.severity <= told:
            return None
        self._told[head.cause] = now.severity
        return now

    @property
    def claims(self) -> list[Claim]:
        """The newest claim of each cause, in the order in which causes were first told of."""
        return list(self._claims.values())

    @property
    def findings(self) -> dict[Cause, Finding]:
        """All findings as of now, by their cause, in the order in which they were found."""
        return {claim.cause: self._finding(claim) for claim in settle(self.claims)}

    def _finding(self, claim: Claim) -> Finding:
        return claim.finding(max(self._severity[cause] for cause in (claim.cause, *claim.explains)))


def _newest(known: Claim | None, claim: Claim, *, is_worse: bool) -> Claim:
    """What is kept of two claims of one cause: the newer words and numbers, unless they tell of less; the first batch.

    What was counted when the run was over goes before any estimate.

    A claim of something worse is another one: its batch is when it became that.
    """
    if known is None:
        return claim
    counted = claim.evidence is Evidence.OTHER  # how often it was seen, not how many there are
    count = known.count + claim.count if counted else claim.count
    began = min((each.since for each in (known, claim) if each.since is not None), default=None)
    if is_worse:
        return replace(claim, count=count, since=began)
    if counted and (claim.bytes or 0) <= (known.bytes or 0):
        return replace(known, count=count)
    if not counted and known.is_final != claim.is_final:
        if known.is_final:
            return known  # what was carried on from an earlier look
    elif not counted and _tells_less(claim, known):
        return known
    severity = max(known.severity, claim.severity)
    return replace(
        claim,
        stage=known.stage,
        epoch=known.epoch,
        batch=known.batch,
        phase=known.phase,
        severity=severity,
        count=count,
        since=began,
    )


def _tells_less(claim: Claim, known: Claim) -> bool:
    """Whether the newer claim of a cause tells of less than the older one; without bytes its count decides."""
    if claim.bytes is not None and known.bytes is not None:
        return (claim.bytes, claim.count) < (known.bytes, known.count)
    return (claim.count, claim.bytes is not None) < (known.count, known.bytes is not None)
