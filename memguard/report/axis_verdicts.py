"""The verdict by axis: which ranks as a group grow, hold or peak higher, how much, and at which line.

No torch. Each figure that ranks can be compared by is explained by where the ranks are (`memguard.report.axis_groups`);
the line is that of a finding which the group has and the others lack, else the line that calls the model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, final

import numpy as np

from memguard.records.findings import Finding, Severity
from memguard.report.axis_groups import RANK, Fleet, Group, Healthy
from memguard.report.text import ranks_text
from memguard.report.trends import Growth, Trend
from memguard.text.units import GIB, MIB, format_bytes

Array: TypeAlias = "np.ndarray[Any, Any]"
Cause: TypeAlias = "tuple[str, str | None, int | None, str | None]"

_LEAST_SHARE, _LEAST_BYTES = 0.001, 256 << 10
"""Of the device, and at least: a smaller difference is none."""
_LEAST_HOST_BYTES = 32 * MIB
_LEAST_PEAK_SHARE = 0.01
"""Of the device: peaks and what is held differ a little for many reasons."""
_DIFFER, _DIFFER_ON_HOST = 0.03, 0.1
"""Share of the others' figure that healthy ranks are assumed to differ by (a standard deviation)."""
_MOST = 3
"""Groups that are named for one figure."""
_MOST_VERDICTS = 16
_SHARED, _ELSEWHERE = 0.75, 0.25
"""A finding belongs to a group where at least so many of its ranks have it, and at most so many of the others."""
_CHANCE = 0.05
"""So does one that fewer of its ranks have and no other, where that is less likely than this if it were on any ranks:
checks are samples, and not every rank's comes to what all of them do."""
_FEW = 0.1
"""Share of a finding's ranks that may be outside of the group that is named for it."""
_ORDER = list(Severity)
_CAUSES = ("MG1", "MG2", "MG3")
"""Beginnings of the codes of rules that name what keeps memory."""
_HOST_CODES = ("MG701", "MG702", "MG703", "MG704")
_GROWTH_CODES = ("MG101", "MG102", "MG104", "MG301", "MG306", "MG501", *_HOST_CODES)
"""Rules that name what keeps more with each batch."""
_KEPT_CODES = (*_GROWTH_CODES, "MG302", "MG303", "MG308", "MG309", "MG312")
"""Rules that name what is kept between batches: it does not make peaks alone higher."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class AxisRank:
    """One rank, as the verdict sees it."""

    trend: Trend
    findings: Sequence[Finding]
    called: Mapping[str, Any]
    """Where its training calls the model: ``file`` and ``line``."""
    total_bytes: int | None
    restarts: int = 0
    """How many starts its recordings had before the newest one."""
    grew_before: bool = False
    """Whether an earlier start grew as well."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class AxisVerdict:
    """One way in which a group of ranks differs from the rest."""

    kind: str
    """``grows``, ``host-grows``, ``holds``, ``peaks``, ``outside``, ``host-holds`` or ``finding``."""
    axes: Mapping[str, int | str]
    """The group: its place on the axes that tell it from the rest, or ``rank`` for one alone."""
    ranks: tuple[int, ...]
    where: str
    """The group in words, like ``pp=3 (the last stage)``."""
    bytes: int | None = None
    """How much more than the others."""
    bytes_per_step: float | None = None
    code: str | None = None
    file: str | None = None
    line: int | None = None
    holder: str | None = None
    text: str = ""
    """The verdict in a sentence."""

    def names(self, finding: Mapping[str, Any]) -> bool:
        """Whether it is a finding's (as JSON values), on a rank of this group."""
        same = (self.code, self.file, self.line) == (finding["code"], finding["file"], finding["line"])
        return self.code is not None and same and finding["rank"] in self.ranks

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "kind": self.kind,
            "axes": dict(self.axes),
            "ranks": list(self.ranks),
            "where": self.where,
            "bytes": self.bytes,
            "bytes_per_step": self.bytes_per_step,
            "code": self.code,
            "file": self.file,
            "line": self.line,
            "holder": self.holder,
            "text": self.text,
        }


_Figure: TypeAlias = "Callable[[AxisRank], float | None]"


@final
class Verdicts:
    """Finds all verdicts of a run.

    Args:
        fleet: Where its ranks are.
        ranks: The ranks.
        peaks: Their usual peaks in bytes, in the fleet's order; None where they are not known.
    """

    def __init__(self, fleet: Fleet, ranks: Mapping[int, AxisRank], peaks: Array | None) -> None:
        self._fleet, self._ranks, self._peaks = fleet, ranks, peaks
        self._of_cause: dict[Cause, dict[int, Finding]] = {}
        for rank, each in ranks.items():
            for finding in each.findings:
                if finding.severity is not Severity.INFO and finding.code != "MG603":
                    self._of_cause.setdefault(finding.cause, {})[rank] = finding
        totals = [each.total_bytes for each in ranks.values() if each.total_bytes]
        self._total = max(totals, default=None)
        self.found: list[AxisVerdict] = []
        self._named: set[Cause] = set()

    def find(self) -> list[AxisVerdict]:
        """All verdicts: growth first, then what is held, then peaks, then what findings alone tell."""
        if len(self._ranks) < 2:
            return []
        share = self._total or 0
        grown = max(int(_LEAST_SHARE * share), _LEAST_BYTES)
        large = max(int(_LEAST_PEAK_SHARE * share), MIB if share and share < GIB else 64 * MIB)
        self._compare_growth("grows", lambda each: each.trend.device, grown)
        self._compare_growth("host-grows", lambda each: each.trend.host, _LEAST_HOST_BYTES)
        self._compare("outside", self._of(lambda each: each.trend.outside_bytes), large)
        self._compare("host-holds", self._of(lambda each: each.trend.host_bytes), 8 * _LEAST_HOST_BYTES)
        self._compare("holds", self._of(lambda each: each.trend.held_bytes), large)
        if self._peaks is not None:
            self._compare("peaks", self._peaks, large)
        self._from_findings()
        return self.found

    def _of(self, figure: _Figure) -> Array:
        """A figure of each rank; NaN where it is unknown."""
        return np.asarray([figure(self._ranks[rank]) for rank in self._fleet.ranks], dtype=float)

    def _compare_growth(self, kind: str, growth: Callable[[AxisRank], Growth], least: int) -> None:
        """Names the groups that grow, where the others do not wander as far."""
        wander = np.nan_to_num(self._of(lambda each: growth(each).wander))
        healthy = Healthy(
            spread=lambda others: float(np.sqrt(np.mean(wander[others] ** 2))),
            differ=self._of(lambda each: growth(each).rise),
        )
        self._name(kind, self._of(lambda each: growth(each).bytes), least, healthy)

    def _compare(self, kind: str, values: Array, least: int) -> None:
        """Names the groups whose size is above the others'; a rank that does not know its own is in none."""
        share = _DIFFER_ON_HOST if kind.startswith("host") else _DIFFER
        self._name(kind, values, least, Healthy(spread=lambda others: share * float(np.median(values[others]))))

    def _name(self, kind: str, values: Array, least: int, healthy: Healthy) -> None:
        """Names the groups whose figure is above the others', highest first."""
        of_host = kind.startswith("host")
        for _ in range(_MOST):
            group = self._fleet.outlier(values, of_host=of_host, healthy=healthy)
            if group is None or (group.more < least and not self._is_found(kind, group)):
                return
            values = group.rest
            if not self._is_known(kind, group):
                self.found.append(self._verdict(kind, group))

    def _is_found(self, kind: str, group: Group) -> bool:
        """Whether a finding of the group says as well that it grows: then small growth counts too."""
        finding = self._finding_of(group, kind) if kind.endswith("grows") else None
        return finding is not None and finding.code in _GROWTH_CODES

    def _is_known(self, kind: str, group: Group) -> bool:
        """Whether the same ranks were named for what makes this figure higher too."""
        behind = {
            "holds": ("grows",),
            "peaks": ("grows", "holds"),
            "host-holds": ("host-grows", "grows"),
            "host-grows": ("grows",),
        }.get(kind, ())
        if kind == "host-grows":  # on the CPU or a virtual device both are one; a finding of the host's own is another
            finding = self._finding_of(group, kind)
            behind = () if finding is not None and finding.code in _HOST_CODES else behind
        return any(each.kind in behind and set(group.ranks) <= set(each.ranks) for each in self.found)

    def _verdict(self, kind: str, group: Group) -> AxisVerdict:
        finding = self._finding_of(group, kind)
        if finding is not None:
            self._named.add(finding.cause)
        called = self._ranks[group.ranks[0]].called
        file = finding.file if finding is not None and finding.file else called.get("file")
        line = finding.line if finding is not None and finding.file else called.get("line")
        rates = [self._rate(kind, rank) for rank in group.ranks]
        per_step = float(np.median(rates)) if kind.endswith("grows") else None
        return AxisVerdict(
            kind=kind,
            axes=group.axes,
            ranks=group.ranks,
            where=group.words,
            bytes=int(group.more),
            bytes_per_step=per_step,
            code=finding.code if finding is not None else None,
            file=file if isinstance(file, str) else None,
            line=line if type(line) is int else None,
            holder=finding.holder if finding is not None else None,
            text=self._text(kind, group, per_step, finding, file, line),
        )

    def _rate(self, kind: str, rank: int) -> float:
        trend = self._ranks[rank].trend
        return trend.host.per_step if kind.startswith("host") else trend.device.per_step

    def _finding_of(self, group: Group, kind: str) -> Finding | None:
        """The finding of most weight that the group has and the others lack."""
        of_host = kind.startswith("host")
        inside = set(group.ranks)
        outside = len(self._ranks) - len(inside)
        fitting = []
        for cause, of in self._of_cause.items():
            here = len(inside & of.keys())
            shared = here >= _SHARED * len(inside) and len(of) - here <= _ELSEWHERE * outside
            suits, alone = _suits(cause[0], of_host), here == len(of)
            suits -= kind == "peaks" and suits == 2 and cause[0] in _KEPT_CODES
            shared &= suits == 2 or len(inside) > 1  # one rank has what does not explain it by chance
            says_so = kind.endswith("grows") and suits == 2 and cause[0] in _GROWTH_CODES
            by_chance = 0.0 if says_so else (len(inside) / max(len(self._ranks), 1)) ** here
            if not shared and not (suits == 2 and alone and by_chance < _CHANCE):
                continue
            finding = of[min(inside & of.keys())]
            elsewhere = (len(of) - here) / max(outside, 1)
            severity = _ORDER.index(finding.severity)
            weight = (suits, says_so, shared, finding.file is not None, -elsewhere, severity, finding.bytes or 0)
            fitting.append((weight, finding))
        return max(fitting, key=lambda each: each[0], default=(None, None))[1]

    def _text(
        self, kind: str, group: Group, per_step: float | None, finding: Finding | None, file: object, line: object
    ) -> str:
        more, usual = format_bytes(int(group.more)), format_bytes(int(group.outside))
        what = {
            "grows": "grows",
            "host-grows": "grows in host RAM",
            "outside": f"uses {more} more of the device outside PyTorch's allocator than the others ({usual})",
            "host-holds": f"uses {more} more host RAM than the others ({usual})",
            "holds": f"holds {more} more than the others ({usual}) before each batch",
            "peaks": f"peaks {more} higher than the others ({usual})",
        }[kind]
        if per_step is not None:
            what += f", {format_bytes(per_step)} a step"
        first = self._ranks[group.ranks[0]]
        if kind == "grows" and first.restarts and not first.grew_before:
            what += ", since its restart"
        return f"only {_members(group)} {what}{_at(finding, file, line, found_on=self._found_on(finding, group))}"

    def _found_on(self, finding: Finding | None, group: Group) -> str:
        """On which ranks of a group its finding is, where that is on few of them."""
        if finding is None or len(of := self._of_cause[finding.cause]) >= _SHARED * len(group.ranks):
            return ""
        return f", found on {ranks_text(sorted(of))}"

    def _from_findings(self) -> None:
        """Findings that a group of ranks has alone, and that no figure named."""
        for cause, of in self._of_cause.items():
            if cause in self._named or len(of) == len(self._ranks):
                continue
            of_host = cause[0] in _HOST_CODES
            values = np.asarray([float(rank in of) for rank in self._fleet.ranks])
            group = self._fleet.outlier(values, of_host=of_host)
            if group is None or len(of.keys() - set(group.ranks)) > _FEW * len(of):
                group = self._fleet.around(sorted(of), _CHANCE, of_host=of_host)
            if group is None or len(self.found) >= _MOST_VERDICTS:
                continue
            trend = self._ranks[group.ranks[0]].trend
            if RANK in group.axes and (trend.host if of_host else trend.device).bytes is not None:
                continue  # no figure of it differs: checks are samples, and others may have what it has
            is_some = RANK in group.axes or len(of) < _SHARED * len(group.ranks)
            if is_some and _suits(cause[0], of_host) < 2:
                continue  # what a rank's own list of findings tells as well
            finding = of[min(of)]
            self.found.append(
                AxisVerdict(
                    kind="finding",
                    axes=group.axes,
                    ranks=group.ranks,
                    where=group.words,
                    bytes=finding.bytes,
                    code=finding.code,
                    file=finding.file,
                    line=finding.line,
                    holder=finding.holder,
                    text=f"only {_members(group)} has {finding.code} {finding.name}"
                    + _at(finding, finding.file, finding.line, with_code=False)
                    + self._found_on(finding, group),
                )
            )


def _members(group: Group) -> str:
    """A group in words, with its ranks."""
    if RANK in group.axes:
        return group.words
    ranks = ranks_text(group.ranks)
    return f"{group.words[:-1]}; {ranks})" if group.words.endswith(")") else f"{group.words} ({ranks})"


def _suits(code: str, of_host: bool) -> int:
    """How well a rule explains a figure: 2 where it names what keeps memory, 1 where it names a symptom of it."""
    if (code in _HOST_CODES) != of_host:
        return 0
    return 2 if of_host or code[:3] in _CAUSES or code in ("MG405", "MG501") else 1


def _at(finding: Finding | None, file: object, line: object, *, with_code: bool = True, found_on: str = "") -> str:
    """The line and the holder, after a comma."""
    if not isinstance(file, str):
        return ""
    place = f"{Path(file).name}:{line}"
    if finding is None:
        return f"; the model is called at {place}"
    holder = f", `{finding.holder}` in {place}" if finding.holder else f", {place}"
    return holder + (f" ({finding.code}{found_on})" if with_code else "")
