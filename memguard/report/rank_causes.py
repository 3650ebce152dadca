"""Why one rank's peak is above the others': its inputs, what it holds between batches, its findings. No torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any, final

from memguard.records.facts import RankPeaks
from memguard.records.findings import Finding, Severity
from memguard.records.stats import STAGES, Run, Stage
from memguard.report.axis_groups import Fleet, Group, place_in, what_is
from memguard.report.rank_differences import Cause, Evidence, differences, row_of
from memguard.report.ranks import Spread
from memguard.report.text import ranks_text
from memguard.rules.device_share import RankImbalance, WrongDevice
from memguard.text.units import format_bytes


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class WorstRank:
    """The rank with the highest peak, and why it is the highest."""

    rank: int
    peak_bytes: int
    batch: int
    stage: Stage
    median_bytes: int
    """Median of the ranks' peaks in that optimizer step."""
    lowest_rank: int
    lowest_bytes: int
    where: str
    """The group whose ranks are all as high, like ``pp=0 (the first stage)``; else this rank and its place."""
    causes: tuple[str, ...]
    """Sentences, the strongest first; empty where the recordings show no difference."""
    findings: tuple[Finding, ...]
    """Findings of this rank that most others do not have; the most severe first."""
    finding: Finding | None
    """MG603 with its cause, where the difference matters."""

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "rank": self.rank,
            "peak_bytes": self.peak_bytes,
            "batch": self.batch,
            "stage": self.stage.value,
            "median_bytes": self.median_bytes,
            "lowest_rank": self.lowest_rank,
            "lowest_bytes": self.lowest_bytes,
            "where": self.where,
            "why": list(self.causes),
            "findings": [finding.to_json() for finding in self.findings],
        }


def worst_rank(spread: Spread, ranks: Mapping[int, Evidence], fleet: Fleet | None = None) -> WorstRank | None:
    """The rank with the highest peak; None if no rank has any.

    Args:
        spread: The ranks' heights.
        ranks: What else is known of each.
        fleet: Where they are; None takes it from their sessions.
    """
    peaks = {
        rank: peak for rank, peak in zip(spread.ranks, spread.table.max(axis=1).tolist(), strict=True) if peak >= 0
    }
    if not peaks:
        return None
    worst, lowest = max(peaks, key=lambda rank: peaks[rank]), min(peaks, key=lambda rank: peaks[rank])
    at = spread.position(worst)
    fleet = fleet or Fleet({rank: place_in(ranks[rank].session) for rank in spread.ranks})
    along = Along.of(fleet, spread, worst)
    others = [rank for rank in spread.ranks if rank not in along.alike and row_of(spread, rank, at)["peak"] >= 0]
    own = row_of(spread, worst, at)
    stage = STAGES[own["stage"]] if 0 <= own["stage"] < len(STAGES) else Stage.OTHER
    findings = {rank: each.findings for rank, each in ranks.items()}
    alone = _only_here(
        {rank: told for rank, told in findings.items() if rank == worst or rank not in along.alike}, worst
    )
    causes = _ran_out(ranks[worst].oom) + _stage_alone(stage, ranks, worst)
    if others:
        causes += differences(spread, at, worst, others, ranks) or ([] if alone else along.causes())
    only = "only these ranks have" if len(along.alike) > 1 else "only this rank has"
    causes += [Cause(f"{only} {_named(finding)}") for finding in alone[:3]]
    causes += _visitors(findings, worst, ranks)
    told = WorstRank(
        rank=worst,
        peak_bytes=peaks[worst],
        batch=own["batch"],
        stage=stage,
        median_bytes=int(median(row_of(spread, rank, at)["peak"] for rank in others)) if others else peaks[worst],
        lowest_rank=lowest,
        lowest_bytes=peaks[lowest],
        where=along.where,
        causes=tuple(cause.text for cause in causes),
        findings=tuple(alone),
        finding=None,
    )
    advice = next((cause.advice for cause in causes if cause.advice), None)
    return replace(told, finding=_imbalance(told, peaks, ranks[worst], advice, along.words()))


def _ran_out(oom: dict[str, Any] | None) -> list[Cause]:
    if oom is None or not oom.get("cause"):
        return []
    place = _place(oom)
    at = f" ({place['file']}:{place.get('line')})" if place.get("file") else ""
    text = f"it ran out of memory: {str(oom['cause']).rstrip('.')}{at}"
    return [Cause(text, f"do what the report of rank {oom.get('rank', '?')} advises.")]


def _place(oom: dict[str, Any] | None) -> dict[str, Any]:
    place = (oom or {}).get("place")
    return place if isinstance(place, dict) else {}


def _stage_alone(stage: Stage, ranks: Mapping[int, Evidence], worst: int) -> list[Cause]:
    """A stage that no other rank has, as a checkpoint that one rank gathers."""
    if stage is Stage.OTHER or any(stage in each.stages for rank, each in ranks.items() if rank != worst):
        return []
    text = f"its peak is in {stage.value}, which no other rank does"
    return [Cause(text, "do on the host what one rank does for all, or in pieces.")]


def _only_here(findings: Mapping[int, Sequence[Finding]], worst: int) -> list[Finding]:
    """The rank's findings (no acts of memguard's own) that at most a quarter of the others share."""
    shared: dict[Any, int] = {}
    for rank, listed in findings.items():
        if rank != worst:
            for cause in {finding.cause for finding in listed}:
                shared[cause] = shared.get(cause, 0) + 1
    alone = [
        finding
        for finding in findings.get(worst, ())
        if finding.severity is not Severity.INFO
        and finding.code != RankImbalance.code
        and shared.get(finding.cause, 0) <= (len(findings) - 1) / 4
    ]
    return sorted(alone, key=lambda each: (-list(Severity).index(each.severity), -(each.bytes or 0)))


def _visitors(findings: Mapping[int, Sequence[Finding]], worst: int, ranks: Mapping[int, Evidence]) -> list[Cause]:
    """Other ranks that hold memory on this rank's device (MG602), on the same node."""
    here = ranks[worst].session
    guests = [
        (rank, finding)
        for rank, told in findings.items()
        for finding in told
        if finding.code == WrongDevice.code
        and rank != worst
        and finding.holder == here.get("device")
        and ranks[rank].session.get("host") == here.get("host")
    ]
    if not guests:
        return []
    held = sum(finding.bytes or 0 for _, finding in guests)
    names = ranks_text([rank for rank, _ in guests])
    text = f"{names} hold{'s' * (len(guests) == 1)} {format_bytes(held)} on its device {here['device']} (MG602)"
    return [Cause(text, f"first see to MG602: {guests[0][1].advice}")]


def _imbalance(
    worst: WorstRank, peaks: Mapping[int, int], evidence: Evidence, advice: str | None, along: str
) -> Finding | None:
    """MG603 by its own rule, over all ranks, with the axis that it follows and the cause."""
    session = evidence.session
    total = session.get("device_total_bytes")
    run = Run(device=str(session.get("device", "")), device_total_bytes=total, rank=worst.rank)
    fact = RankPeaks(batch=worst.batch, stage=worst.stage, peaks=tuple(sorted(peaks.items())))
    for claim in RankImbalance().learn(fact, run):
        finding = claim.finding(claim.severity)
        why = f" Why: {'; '.join(worst.causes)}." if worst.causes else ""
        first = next((each for each in worst.findings if each.file), None)
        file, line = _place(evidence.oom).get("file"), _place(evidence.oom).get("line")
        told = advice or finding.advice
        if first is not None:
            file, line = first.file, first.line
            told = f"fix {first.code} in {file}:{line} first{f'; then {advice}' if advice else '.'}"
        return replace(
            finding,
            message=finding.message + along + why,
            advice=told,
            file=file,
            line=line,
            holder=None,
            rank=worst.rank,
        )
    return None


def _named(finding: Finding) -> str:
    at = f" in {finding.file}:{finding.line}" if finding.file else ""
    held = f", {format_bytes(finding.bytes)} when reported" if finding.bytes else ""
    return f"{finding.code} {finding.name}{at}" + (f" ({finding.holder}{held})" if finding.holder else "")


# How the ranks' peaks follow a parallel axis: a group is highest, or they differ along an axis.

_SHOWN = 4
_WITHIN = "its inputs and what it holds before the batch are as elsewhere, so the difference is in the activations: "
_CAUSES = {
    "ep": Cause(
        f"{_WITHIN}more tokens go to its experts",
        "balance the router (an auxiliary loss, a bias per expert) or cap the tokens of an expert (capacity factor).",
    ),
    "pp": Cause(
        f"{_WITHIN}earlier stages keep those of more micro-batches, and the last one has the loss",
        "move layers from this stage to others, checkpoint its activations, or use fewer micro-batches in flight.",
    ),
    "cp": Cause(f"{_WITHIN}its part of the sequence costs more", "split the sequence more evenly over the ranks."),
}
"""What it comes from where neither inputs nor what is held differ, and what helps."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Along:
    """What the peaks follow."""

    alike: frozenset[int]
    """The ranks that are as high as the highest one, itself among them."""
    where: str
    axes: tuple[str, ...] = ()
    medians: Mapping[int | str, float] | None = None
    """At each place of the one axis, where the peaks differ along it."""

    @classmethod
    def of(cls, fleet: Fleet, spread: Spread, worst: int) -> Along:
        """What the ranks' usual peaks follow: single spikes do not count.

        Args:
            fleet: Where the ranks are.
            spread: Their heights.
            worst: The rank with the highest one.
        """
        alone = cls(alike=frozenset({worst}), where=fleet.rank_words(worst))
        values = spread.usual()
        if fleet.ranks != spread.ranks or values is None:
            return alone
        group: Group | None = fleet.outlier(values)
        if group is not None and worst in group.ranks:
            return cls(alike=frozenset(group.ranks), where=group.words, axes=tuple(group.axes))
        found = fleet.by_axis(values)
        if found is None or fleet.place(worst).get(found[0]) is None:
            return alone
        axis, medians = found
        own = fleet.place(worst)[axis]
        alike = frozenset(rank for rank in fleet.ranks if fleet.place(rank).get(axis) == own)
        return cls(alike=alike, where=fleet.words({axis: own}), axes=(axis,), medians=medians)

    def words(self) -> str:
        """A sentence about the group, or the axis; empty for a rank alone."""
        if self.medians is not None:
            (axis,) = self.axes
            order = sorted(self.medians.items(), key=lambda each: -each[1])
            shown = order if len(order) <= _SHOWN else [*order[: _SHOWN - 1], order[-1]]
            told = ", ".join(f"{format_bytes(int(value))} at {axis}={place}" for place, value in shown)
            return f" Peaks differ between the {what_is(axis)}: {told}."
        if len(self.alike) == 1:
            return ""
        return f" The same holds for all of {self.where}: {ranks_text(sorted(self.alike))}."

    def causes(self) -> list[Cause]:
        """Why, by elimination: neither the inputs nor what is held differ."""
        return [_CAUSES[axis] for axis in self.axes if axis in _CAUSES][:1]
