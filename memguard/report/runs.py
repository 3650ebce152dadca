"""From directories to one run: its recordings of all ranks, devices and restarts, merged and compared. No torch."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

from memguard.axes import places_in
from memguard.errors import RecordingError
from memguard.recording.format import FOLDER, place_of
from memguard.recording.reader import Recording, find_recordings
from memguard.recording.remote import LocalCopies, fetch_recordings, folders_of_recordings
from memguard.records.stats import Stage
from memguard.records.summary import Summary
from memguard.records.summary import most as largest
from memguard.report.axis_groups import Fleet, place_in
from memguard.report.axis_verdicts import AxisRank, AxisVerdict, Verdicts
from memguard.report.html_rows import normalise
from memguard.report.rank_causes import WorstRank, worst_rank
from memguard.report.rank_endings import ending_of
from memguard.report.ranks import MOST, Heights, Spread, heights_of, spread
from memguard.report.starts import Start, start_of
from memguard.report.summaries import fallen_in, merge, summarize
from memguard.report.text import ranks_text
from memguard.report.trends import Trend, trend_of
from memguard.rules.device_share import RankImbalance
from memguard.text.units import format_bytes
from memguard.text.urls import is_url, join, shown

_RESTART = re.compile(r"restart(\d+)(?:-device\d+)?$")
_POINTS = 200
"""Stretches of the run in JSON."""


@final
@dataclass(slots=True)
class RankOnDisk:
    """What one rank left: all its starts together, and of the newest what comparing ranks needs."""

    rank: int
    summary: Summary
    path: Path
    """The newest recording on the rank's first device."""
    heights: Heights
    session: dict[str, Any] = field(default_factory=dict)
    last_time: float | None = None
    """When its last record was made; seconds since 1970."""
    end_time: float | None = None
    """When it said how it ended; likewise."""
    starts: list[Start] = field(default_factory=list)
    """Oldest first; where the device changed between them, those before it did are not told."""
    peers: list[dict[str, Any]] = field(default_factory=list)
    """What it saw of other ranks that fell, or finished while it went on."""
    trend: Trend = field(default_factory=Trend)
    """Of its newest start."""
    called: dict[str, Any] = field(default_factory=dict)
    """Where its training calls the model."""
    grew_before: bool = False
    """Whether what it holds grew in an earlier start too."""

    def for_axes(self) -> AxisRank:
        """What the verdict by axis asks of it."""
        return AxisRank(
            trend=self.trend,
            findings=self.summary.findings,
            called=self.called,
            total_bytes=self.summary.device_total_bytes,
            restarts=len(self.starts) - 1,
            grew_before=self.grew_before,
        )

    @property
    def last_word(self) -> str:
        """How it ended, after how many batches, with what peak and findings."""
        summary, worst = self.summary, max((each.severity for each in self.summary.findings), default=None)
        height = summary.peak.allocated_bytes
        height = height if height is not None else summary.peak.host_rss_bytes
        ended = "out of memory" if summary.oom is not None else summary.ended or "no word of its end"
        told = [f"{ended} after {summary.batches} batches"]
        told += [f"peak {format_bytes(height)}"] if height is not None else []
        told += [f"{len(summary.findings)} findings, the worst {worst.value}"] if worst is not None else []
        return ", ".join(told)

    @property
    def fallen_peers(self) -> list[int]:
        """The ranks that it saw fall."""
        return fallen_in(self.peers)

    def to_json(self) -> dict[str, Any]:
        """The rank under the keys of the report's JSON contract."""
        summary = self.summary
        return {
            "rank": self.rank,
            "device": summary.device,
            "batches": summary.batches,
            "peak": summary.peak.to_json(),
            "device_total_bytes": summary.device_total_bytes,
            "headroom_bytes": summary.headroom_bytes,
            "ended": summary.ended,
            "recording": summary.recording,
            "node": self.session.get("node"),
            "host": self.session.get("host"),
            "starts": len(self.starts),
            "sessions": [each.to_json() for each in self.starts],
            "restart": self.session.get("restart", 0),
            "last_time": self.last_time,
            "findings": len(summary.findings),
            "oom": summary.oom is not None,
            "fallen_peers": self.fallen_peers,
            "devices": summary.to_json()["devices"],
            "coordinates": places_in(self.session.get("coordinates")),
            "last_word": self.last_word,
        }


@final
@dataclass(slots=True)
class RunOnDisk:
    """One run: everything in one ``memguard`` folder (or in several, of nodes without a common disk)."""

    ranks: dict[int, RankOnDisk] = field(default_factory=dict)
    summary: Summary = field(default_factory=Summary)
    spread: Spread | None = None
    """The ranks beside each other; None for a single one."""
    worst: WorstRank | None = None
    verdicts: list[AxisVerdict] = field(default_factory=list)
    """Which groups of ranks differ from the rest, by parallel axis, node or rank."""
    copies: list[LocalCopies] = field(default_factory=list)
    """What was copied here from a URL: gone with this run."""

    def to_json(self) -> dict[str, Any]:
        """The run under the keys of the report's JSON contract."""
        data = {**self.summary.to_json(), "ranks": [each.to_json() for _, each in sorted(self.ranks.items())]}
        if self.spread is not None:
            data["verdicts"] = [each.to_json() for each in self.verdicts]
            data["findings"] = [{**told, **self._where(told)} for told in data["findings"]]
            data["worst_rank"] = self.worst.to_json() if self.worst is not None else None
            data["over_ranks"] = self.spread.stretches(_POINTS)
        return data

    def _where(self, told: dict[str, Any]) -> dict[str, Any]:
        """A finding's place on the parallel axes, and the group of ranks that has it alone, as JSON values."""
        rank = self.ranks.get(told["rank"])
        verdict = next((each for each in self.verdicts if each.names(told)), None)
        return {
            "coordinates": places_in(rank.session.get("coordinates")) if rank is not None else {},
            "where": verdict.where if verdict is not None else None,
            "axes": dict(verdict.axes) if verdict is not None else None,
        }

    @property
    def starts(self) -> list[Start]:
        """Those of the first rank with the most of them."""
        return max((self.ranks[rank].starts for rank in sorted(self.ranks)), key=len)

    @property
    def paths(self) -> list[Path]:
        """Each rank's newest recording."""
        return [each.path for _, each in sorted(self.ranks.items())]


def load_run(logdirs: Sequence[str]) -> RunOnDisk:
    """The run in a directory; of several runs the newest, with a note that names how many there are.

    Args:
        logdirs: Its directory, a path or a URL of fsspec's; several for the ranks of nodes without a common disk.

    Raises:
        RecordingError: There is no recording, or none that can be read.
    """
    run, broken = RunOnDisk(), []
    paths, notes = _paths(logdirs, run.copies)
    most = max(MOST * 128 // max(len(paths), 128), 64)
    for path, source in paths.items():
        try:
            _add(run, Recording.open(path, source=source), most)
        except RecordingError as error:
            broken.append(str(error))
    if not run.ranks:
        raise RecordingError(broken[0])
    ranks = [run.ranks[rank] for rank in sorted(run.ranks)]
    run.summary = merge([each.summary for each in ranks])
    if len(ranks) > 1:
        _compare(run, ranks)
    run.summary.notes = [*run.summary.notes, *notes, *_strangers(ranks), *broken]
    return run


def _paths(logdirs: Sequence[str], copies: list[LocalCopies]) -> tuple[dict[Path, str | None], list[str]]:
    """The recordings of the newest run in each directory, oldest first for each rank, and what was left out.

    Args:
        logdirs: The directories.
        copies: Gets what was copied here from a URL.
    """
    paths: dict[Path, str | None] = {}
    notes = []
    for logdir in logdirs:
        found, others, newest = _remote_paths(logdir, copies) if is_url(logdir) else _local_paths(logdir)
        if others:
            notes.append(
                f"{others + 1} runs are below {shown(logdir)}; this is the newest, {newest}. Give another's "
                "directory to read that."
            )
        paths.update(found)
    return {path: paths[path] for path in sorted(paths, key=lambda path: _stamp(path.name))}, notes


def _local_paths(logdir: str) -> tuple[dict[Path, str | None], int, str]:
    """The recordings of the newest run below a directory, how many other runs there are, and where it lies."""
    folders: dict[Path, list[Path]] = {}
    for path in find_recordings(logdir):
        folders.setdefault(path.parent, []).append(path)
    newest = max(folders, key=lambda folder: began(folders[folder]))
    return dict.fromkeys(folders[newest]), len(folders) - 1, str(newest)


def _remote_paths(url: str, copies: list[LocalCopies]) -> tuple[dict[Path, str | None], int, str]:
    """The same for a URL: the newest run's recordings are copied here, each with the URL that it is from."""
    root, folders = folders_of_recordings(url)
    newest = max(folders, key=lambda folder: max(map(_stamp, folders[folder])))
    there = shown(join(root.url, newest) if newest else root.url)
    copy = LocalCopies()
    copies.append(copy)
    into = copy.path / there.removesuffix(f"/{FOLDER}").rpartition("/")[2] / FOLDER
    into.mkdir(parents=True)
    paths = fetch_recordings(root, newest, folders[newest], into)
    return {path: join(there, path.name) for path in paths}, len(folders) - 1, there


def _add(run: RunOnDisk, recording: Recording, most: int) -> None:
    """Takes one more recording, a newer one than the rank's others, in at most so many stretches."""
    summary = summarize(recording)
    known = run.ranks.get(summary.rank)
    place = place_of(recording.path.name)
    if place is not None and place[1] and known is not None:
        known.summary.devices = [each for each in known.summary.devices if each.device != summary.device] + [summary]
        return
    start = start_of(recording, summary)
    starts = [*known.starts, start] if known is not None else [start]
    if known is not None:
        if not start.batches:
            start.kind = known.starts[-1].kind
        if start.kind == known.starts[-1].kind:
            summary = merge([known.summary, summary])
        else:
            for each in known.starts:
                each.told = False
    summary.starts = sum(each.told for each in starts)
    rows = normalise(recording.rows)
    called = [line for line in recording.of_kind("called") if line.get("stage") == Stage.TRAIN.value]
    run.ranks[summary.rank] = RankOnDisk(
        summary.rank,
        summary,
        recording.path,
        heights_of(rows, most=most),
        session=recording.session,
        last_time=recording.record(len(recording) - 1).time if len(recording) else None,
        starts=starts,
        end_time=(recording.end or {}).get("time"),
        peers=recording.of_kind("peer"),
        trend=trend_of(rows),
        called=called[0] if called else {},
        grew_before=known is not None and (known.grew_before or (known.trend.device.bytes or 0) > 0),
    )


def _compare(run: RunOnDisk, ranks: list[RankOnDisk]) -> None:
    summary = run.summary
    summary.ended = ending_of(ranks)
    noted: dict[str, list[int]] = {}
    for each in ranks:
        for note in each.summary.notes:
            noted.setdefault(note, []).append(each.rank)
    summary.notes = [f"{ranks_text(of)}: {note}" for note, of in noted.items()]
    summary.overhead_seconds = largest(each.summary.overhead_seconds for each in ranks)
    summary.start_up_seconds = largest(each.summary.start_up_seconds for each in ranks)
    failed = [each for each in ranks if each.summary.oom is not None]
    if failed:
        summary.oom = min(failed, key=lambda each: (each.summary.oom or {}).get("time") or 0).summary.oom
    fleet = Fleet({each.rank: place_in(each.session) for each in ranks})
    run.spread = spread({each.rank: each.heights for each in ranks})
    run.verdicts = Verdicts(fleet, {each.rank: each.for_axes() for each in ranks}, run.spread.usual()).find()
    run.worst = worst_rank(run.spread, {each.rank: _Evidence(each) for each in ranks}, fleet)
    if run.worst is not None and run.worst.finding is not None:
        others = [finding for finding in summary.findings if finding.code != RankImbalance.code]
        summary.findings = [*others, run.worst.finding]


@final
class _Evidence:
    """What is known of one rank; its recording is opened again where shapes and owners are asked for."""

    def __init__(self, rank: RankOnDisk) -> None:
        self._path = rank.path
        self.findings, self.oom = rank.summary.findings, rank.summary.oom
        self.session, self.stages = rank.session, rank.summary.stages

    @functools.cached_property
    def _recording(self) -> Recording:
        return Recording.open(self._path)

    def shapes(self, number: int) -> list[Any] | None:
        return self._recording.shapes(number)

    def owners(self, batch: int) -> dict[str, Any] | None:
        lines = [line for line in self._recording.of_kind("owners") if isinstance(line.get("batch"), int)]
        return min(lines, key=lambda line: abs(line["batch"] - batch), default=None)


def _strangers(ranks: list[RankOnDisk]) -> list[str]:
    """What speaks against these recordings being of one run."""
    runs = sorted({str(each.session["run"]) for each in ranks if each.session.get("run")})
    expected = max(each.summary.world_size for each in ranks)
    notes = []
    if len(runs) > 1:
        notes.append(f"these recordings are of different runs: {', '.join(runs[:4])}; their ranks are shown as one run")
    if 1 < len(ranks) < expected:
        notes.append(
            f"{len(ranks)} of {expected} ranks are here; give the directories of the other nodes too, if they have "
            "no disk in common"
        )
    return notes


def began(paths: list[Path]) -> tuple[str, int]:
    """When the last process of a run began: by its files' names, and where those are equal by the file system."""
    last = max(paths, key=lambda path: _stamp(path.name))
    at = _stamp(last.name)[0]
    try:
        return at, last.stat().st_mtime_ns
    except OSError:  # gone meanwhile: its name is enough
        return at, 0


def _stamp(name: str) -> tuple[str, int, str]:
    """What of a recording's name tells when it began: the time, the launcher's restart, and node and device."""
    at, _, place = name.removesuffix(".bin").partition("-")[2].partition("-")
    restart = _RESTART.search(place)
    return at, int(restart[1]) if restart is not None else 0, place
