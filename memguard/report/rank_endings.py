"""How the ranks of a run ended: which fell first, which stopped for that, and which ran out of batches. No torch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from memguard.records.stats import Stage
from memguard.report.text import ranks_text

if TYPE_CHECKING:
    from memguard.report.runs import RankOnDisk

_LISTED = 4


def ending_of(ranks: Sequence[RankOnDisk]) -> str | None:
    """How the run of several ranks ended: as the one that fell first, with its rank; None where that left no word."""
    first = [*_full(ranks), *_failed(ranks)]
    if not first and any(each.summary.ended is None for each in ranks):
        return None
    first = first or _in_order(each for each in ranks if each.summary.ended != "finished")
    return f"{first[0].summary.ended or 'out of memory'} on rank {first[0].rank}" if first else "finished"


def ending_lines(ranks: Sequence[RankOnDisk]) -> list[str]:
    """Who fell first, and who stopped because of that; nothing where all finished."""
    lines = []
    for each in _full(ranks):
        oom = each.summary.oom or {}
        lines.append(
            f"Rank {each.rank} ran out of memory in {oom.get('stage', 'batch')} batch {oom.get('batch', '?')}: "
            f"{oom.get('cause', 'see its report')}"
        )
    failed, silent = _failed(ranks), _silent(ranks)
    lines += [
        f"Rank {each.rank} ended with {each.summary.ended} after batch {_last(each)}." for each in failed[:_LISTED]
    ]
    if len(failed) > _LISTED:
        lines.append(f"{ranks_text([each.rank for each in failed[_LISTED:]]).capitalize()} failed as well.")
    lines += _silent_lines(silent, ranks)
    lines += _unequal([*failed, *silent][:1], ranks)
    told = {rank for each in ranks for rank in each.fallen_peers}
    if told:
        by = [each.rank for each in ranks if each.fallen_peers]
        lines.append(f"{ranks_text(by).capitalize()} stopped because {ranks_text(sorted(told))} fell.")
    return ["", *lines] if lines else []


def _silent_lines(silent: Sequence[RankOnDisk], ranks: Sequence[RankOnDisk]) -> list[str]:
    if len(silent) == len(ranks):
        return ["All ranks ended without a word: killed from outside, or they still run."]
    lines = []
    timed = [each.last_time for each in ranks if each.last_time is not None]
    for each in silent[:_LISTED]:
        before = f", {max(timed) - each.last_time:.1f} s before the last record of all" if each.last_time else ""
        lines.append(f"Rank {each.rank} ended without a word after batch {_last(each)}{before}.")
    if len(silent) > _LISTED:
        lines.append(f"So did {ranks_text([each.rank for each in silent[_LISTED:]])}.")
    return lines


def _unequal(fallen: Sequence[RankOnDisk], ranks: Sequence[RankOnDisk]) -> list[str]:
    """Ranks that had finished, with fewer training batches, when this one fell: it waited for them in vain."""
    early = [
        (each, other)
        for each in fallen
        for other in ranks
        if other.summary.ended == "finished" and _trained(other) < _trained(each) and _time(other) <= _time(each)
    ]
    if not early:
        return []
    names, fewest = ranks_text([other.rank for _, other in early]), min(_trained(other) for _, other in early)
    return [
        f"{names.capitalize()} had finished by then, after {fewest} training batches; rank {early[0][0].rank} had "
        f"{_trained(early[0][0])}. Give every rank as many, or train under DDP's join()."
    ]


def _full(ranks: Sequence[RankOnDisk]) -> list[RankOnDisk]:
    """Those out of memory, the first one first."""
    full = [each for each in ranks if each.summary.oom is not None]
    return sorted(full, key=lambda each: (each.summary.oom or {}).get("time") or 0)


def _failed(ranks: Sequence[RankOnDisk]) -> list[RankOnDisk]:
    """Those that ended otherwise than they should, by an error of their own."""
    return _in_order(each for each in _unmoved(ranks) if each.summary.ended not in (None, "finished"))


def _silent(ranks: Sequence[RankOnDisk]) -> list[RankOnDisk]:
    """Those without a word."""
    return _in_order(each for each in _unmoved(ranks) if each.summary.ended is None)


def _unmoved(ranks: Sequence[RankOnDisk]) -> list[RankOnDisk]:
    """Those that did not run out of memory, and saw no other one fall."""
    return [each for each in ranks if each.summary.oom is None and not each.fallen_peers]


def _in_order(ranks: Iterable[RankOnDisk]) -> list[RankOnDisk]:
    return sorted(ranks, key=_time)


def _time(each: RankOnDisk) -> float:
    """When it ended, or was last heard of."""
    return each.end_time or each.last_time or 0.0


def _last(each: RankOnDisk) -> int:
    return max(each.summary.batches - 1, 0)


def _trained(each: RankOnDisk) -> int:
    stage = each.summary.stages.get(Stage.TRAIN)
    return stage.batches if stage is not None else 0
