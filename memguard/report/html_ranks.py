"""One run over its ranks as the page shows it: the band of their peaks, the worst rank and why. No torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, final

from memguard.records.findings import Finding
from memguard.records.stats import Stage
from memguard.report.axis_groups import Fleet, place_in
from memguard.report.axis_verdicts import AxisRank, Verdicts
from memguard.report.html_index import RowIndex
from memguard.report.html_lines import LineIndex
from memguard.report.html_rows import Rows
from memguard.report.rank_causes import worst_rank
from memguard.report.ranks import clock_of, heights_of, spread
from memguard.report.trends import trend_of

_STRETCHES = 1000


def over_ranks(windows: Mapping[int, Rows], buckets: int) -> dict[str, list[int]]:
    """The band over ranks, as `memguard.report.ranks.Spread.curves` describes it.

    Args:
        windows: The rows of one window, by rank; every rank's maxima are among them.
        buckets: Width of the chart in pixels.
    """
    windows = {rank: rows for rank, rows in windows.items() if len(rows)}
    if not windows:
        return {"batch": [], "at": [], "low": [], "median": [], "high": [], "worst": []}
    clock = clock_of(windows.values())
    begin = min(int(rows[clock].min()) for rows in windows.values())
    heights = {rank: heights_of(rows, begin=begin, clock=clock) for rank, rows in windows.items()}
    return spread(heights, buckets).curves()


def explain_worst(indexes: Mapping[int, RowIndex], lines: Mapping[int, LineIndex]) -> dict[str, Any] | None:
    """The rank with the highest peak and why, as JSON values; None where there is nothing to compare."""
    windows = {rank: index.window(None, None, _STRETCHES)[0] for rank, index in indexes.items()}
    windows = {rank: rows for rank, rows in windows.items() if len(rows)}
    if len(windows) < 2:
        return None
    clock = clock_of(windows.values())
    heights = {rank: heights_of(rows, clock=clock) for rank, rows in windows.items()}
    evidence = {rank: _Evidence(indexes[rank], lines[rank]) for rank in windows}
    fleet = Fleet({rank: place_in(each.session) for rank, each in evidence.items()})
    compared = spread(heights)
    told = worst_rank(compared, evidence, fleet)
    if told is None:
        return None
    ranks = {rank: each.for_axes(windows[rank]) for rank, each in evidence.items()}
    return {
        **told.to_json(),
        "finding": told.finding.to_json() if told.finding is not None else None,
        "verdicts": [each.to_json() for each in Verdicts(fleet, ranks, compared.usual()).find()],
    }


@final
class _Evidence:
    """What is known of one rank, from the page's indexes."""

    def __init__(self, index: RowIndex, lines: LineIndex) -> None:
        self._index, self._lines = index, lines
        self.session = lines.session
        ooms = [oom for oom in lines.ooms if not oom.get("caught")]
        self.oom = ooms[-1] if ooms else None

    @property
    def findings(self) -> list[Finding]:
        return [Finding.from_json(each) for each in self._lines.findings]

    @property
    def stages(self) -> set[Stage]:
        names = (self._index.stages[code] for code in self._index.stage_counts if 0 <= code < len(self._index.stages))
        return {Stage(name) for name in names if name in Stage._value2member_map_}

    def for_axes(self, rows: Rows) -> AxisRank:
        """What the verdict by axis asks of it, from the rows of a window."""
        return AxisRank(
            trend=trend_of(rows),
            findings=self.findings,
            called=self._lines.called,
            total_bytes=self.session.get("device_total_bytes"),
        )

    def shapes(self, number: int) -> list[Any] | None:
        return self._lines.shapes_of(number)

    def owners(self, batch: int) -> dict[str, Any] | None:
        return self._lines.owners_at(batch)
