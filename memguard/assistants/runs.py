"""Questions about recorded runs: what they came to, found, ran out of, and how they differ. No torch."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, final

from memguard.assistants.directory import Directory, bounded
from memguard.errors import MemGuardError
from memguard.recording.format import COLUMNS, FOLDER
from memguard.recording.reader import Recording, find_recordings
from memguard.records.findings import Finding, Severity
from memguard.records.stats import STAGES, Stage
from memguard.report.compare import compare
from memguard.report.runs import RankOnDisk, RunOnDisk, began, load_run
from memguard.report.text import describe_peak, render
from memguard.rules import ALL_RULES
from memguard.rules.explain import explain, explanations
from memguard.rules.selection import find, find_act
from memguard.text.units import format_bytes

MOST_RUNS, MOST_POINTS, MOST_BATCHES = 50, 200, 50
_COLUMNS = [name for name, _ in COLUMNS if name.endswith("_bytes") or name in ("seconds", "num_alloc_retries")]


@final
class RunTools:
    """Tools that read the recordings below a directory. A run is named by its folder there; "" is the newest."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory

    def tools(self) -> list[Any]:
        """The functions that an assistant may call."""
        return [
            self.list_runs,
            self.describe_run,
            self.list_findings,
            self.explain_out_of_memory,
            self.memory_over_batches,
            self.highest_batches,
            self.describe_batch,
            self.compare_ranks,
            self.compare_runs,
            self.explain_rule,
        ]

    def list_runs(self, limit: int = 10) -> dict[str, Any]:
        """Lists the recorded trainings, newest first: device, batches, peak, findings, how each ended.

        Args:
            limit: How many, at most 50.
        """
        folders: dict[Path, list[Path]] = {}
        for path in _recordings(self._directory.root):
            folders.setdefault(path.parent, []).append(path)
        newest = sorted(folders, key=lambda folder: began(folders[folder]), reverse=True)
        runs = []
        for folder in newest[: _at_most(limit, MOST_RUNS, "limit")]:
            name = self._directory.name_of(folder.parent if folder.name == FOLDER else folder)
            try:
                runs.append({"run": name, **_in_short(self._load(folder))})
            except MemGuardError as error:
                runs.append({"run": name, "problem": str(error)})
        return bounded({"directory": str(self._directory.root), "runs": runs, "runs_in_all": len(newest)})

    def describe_run(self, run: str = "") -> dict[str, Any]:
        """Explains one run in words and numbers: peaks by stage with their batch and input shapes, findings, its end.

        Args:
            run: The run's folder as list_runs names it; "" is the newest.
        """
        found, name = self._run(run)
        summary = found.summary
        return bounded(
            {
                "run": name,
                **_in_short(found),
                "peak": summary.peak.to_json(),
                "peaks": {stage.value: entry.peak.to_json() for stage, entry in summary.in_order.items()},
                "reserved_peak_bytes": summary.reserved_peak_bytes,
                "device_total_bytes": summary.device_total_bytes,
                "headroom_bytes": summary.headroom_bytes,
                "num_alloc_retries": summary.num_alloc_retries,
                "phases": [totals.to_json() for totals in summary.phases.values()],
                "starts": [each.to_json() for each in found.starts],
                "notes": summary.notes,
                "text": render(summary, ranks=len(found.ranks)),
            }
        )

    def list_findings(
        self, run: str = "", at_least: str = "info", code: str = "", rank: int | None = None
    ) -> dict[str, Any]:
        """Lists what memguard found in a run, the most severe first: message, fix, file, line, variable, bytes, rank.

        Args:
            run: The run's folder; "" is the newest.
            at_least: The lowest severity: info, warning or critical.
            code: Only one rule, by its code or name, like MG101 or retained-graph; "" is all.
            rank: Only one rank.
        """
        levels = [severity.value for severity in Severity]
        if at_least not in levels:
            raise MemGuardError(f"at_least must be one of {', '.join(levels)}, got {at_least!r}")
        lowest = Severity(at_least)
        found, name = self._run(run)
        listed = found.summary.findings if rank is None else self._rank(found, rank).summary.findings
        result = [
            finding
            for finding in listed
            if lowest <= finding.severity and (not code or code.lower() in (finding.code.lower(), finding.name))
        ]
        result.sort(key=lambda each: (levels.index(each.severity.value), each.bytes or 0), reverse=True)
        return bounded({"run": name, "count": len(result), "findings": [_finding(each) for each in result]})

    def explain_out_of_memory(self, run: str = "", rank: int | None = None) -> dict[str, Any]:
        """Explains why a run ran out of memory: cause, owners of the memory, the line that asked, verified advice.

        Args:
            run: The run's folder; "" is the newest.
            rank: The rank; None is the first that ran out.
        """
        found, name = self._run(run)
        oom = found.summary.oom if rank is None else self._rank(found, rank).summary.oom
        ranks = [number for number, each in sorted(found.ranks.items()) if each.summary.oom is not None]
        if oom is None:
            ended = found.summary.ended or "without a word, or still runs"
            return {"run": name, "out_of_memory": False, "ended": ended, "ranks_out_of_memory": ranks}
        return bounded({"run": name, "out_of_memory": True, "ranks_out_of_memory": ranks, **oom})

    def memory_over_batches(
        self,
        run: str = "",
        rank: int = 0,
        stage: str = "",
        column: str = "allocated_peak_bytes",
        first_batch: int | None = None,
        last_batch: int | None = None,
        points: int = 40,
    ) -> dict[str, Any]:
        """One figure over the batches of a run, in stretches of batches: lowest and highest of each, and how it rose.

        Args:
            run: The run's folder; "" is the newest.
            rank: The rank.
            stage: train, validation, ...; "" is all.
            column: allocated_start_bytes, allocated_peak_bytes, allocated_end_bytes, reserved_bytes,
                device_used_bytes, host_rss_bytes, seconds, ...
            first_batch: Batches from this number on.
            last_batch: And up to this one.
            points: Into how many stretches, at most 200.
        """
        import numpy as np

        found, name = self._run(run)
        recording = self._recording(found, rank)
        wanted = _rows(recording, stage, column)
        batches, values = recording.rows["batch"][wanted], recording.column(column)[wanted]
        inside = ~np.isnan(values)
        if first_batch is not None:
            inside &= batches >= first_batch
        if last_batch is not None:
            inside &= batches <= last_batch
        batches, values = batches[inside], values[inside]
        answer: dict[str, Any] = {"run": name, "rank": rank, "column": column, "batches": len(values)}
        if not len(values):
            return {**answer, "points": [], "note": f"no batch here has a known {column}"}
        stretches = np.array_split(np.arange(len(values)), min(_at_most(points, MOST_POINTS, "points"), len(values)))
        answer["points"] = [
            {
                "first_batch": int(batches[part[0]]),
                "last_batch": int(batches[part[-1]]),
                "lowest": _number(values[part].min()),
                "highest": _number(values[part].max()),
            }
            for part in stretches
        ]
        answer |= {"first": _number(values[0]), "last": _number(values[-1])}
        answer |= {"lowest": _number(values.min()), "highest": _number(values.max())}
        answer["highest_at_batch"] = int(batches[int(values.argmax())])
        return bounded(answer)

    def highest_batches(
        self, run: str = "", rank: int = 0, stage: str = "", column: str = "allocated_peak_bytes", count: int = 5
    ) -> dict[str, Any]:
        """The batches with the highest figure, with their input shapes: which inputs need most.

        Args:
            run: The run's folder; "" is the newest.
            rank: The rank.
            stage: train, validation, ...; "" is all.
            column: As memory_over_batches takes it.
            count: How many, at most 50.
        """
        import numpy as np

        found, name = self._run(run)
        recording = self._recording(found, rank)
        positions = np.flatnonzero(_rows(recording, stage, column))
        values = recording.column(column)[positions]
        known = ~np.isnan(values)
        positions, values = positions[known], values[known]
        order = np.argsort(-values, kind="stable")[: _at_most(count, MOST_BATCHES, "count")]
        result = [self._batch(recording, int(positions[each])) for each in order]
        return bounded({"run": name, "rank": rank, "column": column, "batches": result})

    def describe_batch(self, batch: int, run: str = "", rank: int = 0) -> dict[str, Any]:
        """One batch: its memory at start, peak and end, input shapes, and what owned the memory, as far as recorded.

        Args:
            batch: The batch's number in the recording.
            run: The run's folder; "" is the newest.
            rank: The rank.
        """
        import numpy as np

        found, name = self._run(run)
        recording = self._recording(found, rank)
        at = np.flatnonzero(recording.rows["batch"] == batch)
        if not len(at):
            first, last = recording.rows["batch"][0], recording.rows["batch"][-1]
            raise MemGuardError(f"rank {rank} of {name} has no batch {batch}; it has batches {first} to {last}")
        owners = [line for line in recording.of_kind("owners") if isinstance(line.get("batch"), int)]
        nearest = min(owners, key=lambda line: abs(line["batch"] - batch), default=None)
        return bounded(
            {
                "run": name,
                "rank": rank,
                **self._batch(recording, int(at[-1])),
                "owners": nearest,
                "findings": [_finding(each) for each in recording.findings if each.batch == batch],
            }
        )

    def compare_ranks(self, run: str = "") -> dict[str, Any]:
        """The ranks of a distributed run beside each other: peaks, which is the worst and why, how each ended.

        Args:
            run: The run's folder; "" is the newest.
        """
        found, name = self._run(run)
        result = [
            {
                "rank": number,
                "node": each.session.get("node"),
                "peak_allocated_bytes": each.summary.peak.allocated_bytes,
                "findings": sorted({finding.code for finding in each.summary.findings}),
                "out_of_memory": each.summary.oom is not None,
                "ended": each.summary.ended,
            }
            for number, each in sorted(found.ranks.items())
        ]
        result.sort(key=lambda each: each["peak_allocated_bytes"] or 0, reverse=True)
        worst = found.worst.to_json() if found.worst is not None else None
        return bounded(
            {
                "run": name,
                "ranks": len(result),
                "world_size": found.summary.world_size,
                "worst_rank": worst,
                "by_peak": result,
                "notes": found.summary.notes,
            }
        )

    def compare_runs(self, run: str, earlier: str) -> dict[str, Any]:
        """How a run differs from an earlier one: peaks by stage, new findings, findings that are gone.

        Args:
            run: The run's folder.
            earlier: The folder of the one it is compared with.
        """
        found, name = self._run(run)
        other, earlier_name = self._run(earlier)
        result = compare(other.summary, found.summary)
        return bounded({"run": name, "earlier": earlier_name, **result})

    def explain_rule(self, code: str = "") -> dict[str, Any]:
        """What a finding's code means, why it matters, how to fix it; without a code the list of all rules.

        Args:
            code: A code or name, like MG101 or retained-graph.
        """
        if not code:
            return {"rules": [{"code": each.code, "name": each.name, "title": each.title} for each in _rules()]}
        act = find_act(code)
        result = [act] if act is not None else [explain(rule) for rule in find(ALL_RULES, code)]
        return bounded({"rules": [{"code": each.code, "name": each.name, "text": each.text()} for each in result]})

    def run_summary(self, run: str) -> RunOnDisk:
        """A run, for other tools.

        Raises:
            MemGuardError: There is none such.
        """
        return self._run(run)[0]

    # Inside

    def _run(self, name: str) -> tuple[RunOnDisk, str]:
        folder = self._directory.path(name)
        found = self._load(folder)
        return found, self._directory.name_of(found.paths[0].parent.parent)

    def _load(self, folder: Path) -> RunOnDisk:
        state = tuple((path, path.stat().st_mtime_ns, _length(path)) for path in _recordings(folder))
        return self._directory.once(("run", folder), state, lambda: load_run([str(folder)]))

    def _rank(self, found: RunOnDisk, rank: int) -> RankOnDisk:
        if rank not in found.ranks:
            raise MemGuardError(f"there is no rank {rank} here; the ranks are {_few(sorted(found.ranks))}")
        return found.ranks[rank]

    def _recording(self, found: RunOnDisk, rank: int) -> Recording:
        recording = Recording.open(self._rank(found, rank).path)
        if not len(recording):
            raise MemGuardError(f"rank {rank} has recorded no batch")
        return recording

    def _batch(self, recording: Recording, position: int) -> dict[str, Any]:
        record = recording.record(position)
        result = {name: getattr(record, name) for name in ("batch", "epoch", "index", "optimizer_steps", *_COLUMNS)}
        return {**result, "stage": record.stage.value, "input_shapes": recording.shapes(record.shapes)}


def _recordings(folder: Path) -> list[Path]:
    return find_recordings(folder)


def _length(path: Path) -> int:
    """Of a recording and its lines, which grow apart."""
    lines = path.with_suffix(".jsonl")
    return path.stat().st_size + (lines.stat().st_size if lines.exists() else 0)


@functools.cache
def _rules() -> Sequence[Any]:
    return explanations(ALL_RULES)


def _rows(recording: Recording, stage: str, column: str) -> Any:
    """Which rows are of a stage; all of them where none is named."""
    if column not in _COLUMNS:
        raise MemGuardError(f"there is no column {column!r}; the columns are {', '.join(_COLUMNS)}")
    stages = [each.value for each in STAGES]
    if not stage:
        return recording.rows["batch"] == recording.rows["batch"]
    if stage not in stages:
        raise MemGuardError(f"there is no stage {stage!r}; the stages are {', '.join(stages)}")
    return recording.stage_mask(Stage(stage))


def _in_short(found: RunOnDisk) -> dict[str, Any]:
    summary = found.summary
    counts = {severity.value: 0 for severity in Severity}
    for finding in summary.findings:
        counts[finding.severity.value] += 1
    return {
        "began": found.starts[-1].time,
        "device": summary.device_name or summary.device,
        "ranks": len(found.ranks),
        "batches": {stage.value: entry.batches for stage, entry in summary.in_order.items()},
        "peak_allocated_bytes": summary.peak.allocated_bytes,
        "peak_in_words": describe_peak(summary.peak),
        "findings": counts,
        "codes": sorted({finding.code for finding in summary.findings}),
        "out_of_memory": summary.oom is not None,
        "ended": summary.ended or "without a word, or it still runs",
    }


def _finding(finding: Finding) -> dict[str, Any]:
    result = {key: value for key, value in finding.to_json().items() if value is not None}
    if finding.bytes is not None:
        result["size"] = format_bytes(finding.bytes)
    return result


def _number(value: Any) -> int | float:
    number = float(value)
    return int(number) if number.is_integer() else round(number, 6)


def _at_most(value: int, most: int, name: str) -> int:
    if value < 1:
        raise MemGuardError(f"{name} must be at least 1, got {value}")
    return min(value, most)


def _few(numbers: Sequence[int]) -> str:
    listed = ", ".join(map(str, numbers[:8]))
    return f"{listed} and {len(numbers) - 8} more" if len(numbers) > 8 else listed
