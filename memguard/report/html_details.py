"""What the page tells of a recording besides its curves: session, findings, post-mortems, owners, medians. No torch."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any, final

import numpy as np

from memguard.findings import Finding
from memguard.report.html_rows import MARKS, RowIndex, Rows

_MOST_SHAPES = 4000
_MOST_OOMS = 20
_LONGEST_TEXT = 20_000
_SPARKLINE = 120
_LEVELS = ("critical", "warning", "info")
_MEDIANS = (
    "seconds",
    "allocated_start_bytes",
    "allocated_peak_bytes",
    "allocated_end_bytes",
    "reserved_bytes",
    "reserved_peak_bytes",
    "active_peak_bytes",
    "inactive_split_bytes",
    "device_used_bytes",
    "host_rss_bytes",
)
_SESSION = (
    "device",
    "device_name",
    "device_total_bytes",
    "limit_bytes",
    "host_limit_bytes",
    "rank",
    "world_size",
    "host",
    "pid",
    "time",
    "torch",
    "memguard",
    "python",
    "precision",
    "batch_size",
    "script",
    "integration",
)


def plain(value: Any, depth: int = 0) -> Any:
    """A value that any JSON reader takes: finite, of bounded length and depth."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, str):
        return value if len(value) <= _LONGEST_TEXT else value[:_LONGEST_TEXT] + " ..."
    if isinstance(value, int) and abs(value) > 2**63:
        return None
    if isinstance(value, (dict, list)) and depth > 12:
        return None
    if isinstance(value, dict):
        return {str(key)[:200]: plain(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item, depth + 1) for item in value]
    return value


@final
class LineIndex:
    """One recording's JSON lines, read as they are appended, up to the first broken one.

    Args:
        read: ``read(offset, size)`` gives the file's bytes there, fewer at its end.
        source: What to call the file in a note.
    """

    def __init__(self, read: Callable[[int, int], bytes], source: str) -> None:
        self._read, self._source = read, source
        self._offset = 0
        self._count = 0
        self._causes: dict[tuple[str, str | None, int | None, str | None], dict[str, Any]] = {}
        self._shapes: dict[int, Any] = {}
        self.session: dict[str, Any] = {}
        """What the run said of itself, updated by what it learned later."""
        self.owners: dict[int, bytes] = {}
        """The owners lines by batch, unparsed: they are many and seldom asked for."""
        self.ooms: list[dict[str, Any]] = []
        self.end: dict[str, Any] | None = None
        self.broken = ""
        """What was broken and where; nothing is read beyond it."""

    def refresh(self, size: int) -> bool:
        """Reads what was appended; the file has ``size`` bytes now.

        Returns:
            Whether there were new lines.
        """
        if size <= self._offset or self.broken:
            return False
        data = self._read(self._offset, size - self._offset)
        whole = data.rfind(b"\n") + 1
        self._offset += whole
        for line in data[:whole].split(b"\n")[:-1]:
            self._count += 1
            if line.strip() and not self._take(line):
                self.broken = f"{self._source}: line {self._count} is broken; read up to there"
                break
        return bool(whole)

    def _take(self, text: bytes) -> bool:
        """Takes one line; False if it is broken."""
        try:
            line: Any = json.loads(text)
            kind = str(line["kind"]) if isinstance(line, dict) else None
        except (ValueError, KeyError, RecursionError):
            kind = None
        if kind is None:
            return False
        if kind == "owners":
            if isinstance(line.get("batch"), int):
                self.owners[line["batch"]] = text
            return True
        line = plain(line)
        if kind in ("session", "device"):
            self.session.update({key: value for key, value in line.items() if value is not None})
        elif kind == "shapes":
            if isinstance(line.get("id"), int) and len(self._shapes) < _MOST_SHAPES:
                self._shapes[line["id"]] = line.get("shapes")
        elif kind == "finding":
            self._finding(line)
        elif kind == "oom":
            self.ooms.append(line)
        elif kind == "end":
            self.end = line
        return True

    def _finding(self, line: dict[str, Any]) -> None:
        """Keeps the newest state of a cause, and the batches of the first and the last."""
        try:
            finding = Finding.from_json(line)
            known = self._causes.get(finding.cause)
            batch = int(finding.batch)
        except (ValueError, TypeError, KeyError):
            return
        first, last = (min(known["first_batch"], batch), max(known["last_batch"], batch)) if known else (batch, batch)
        self._causes[finding.cause] = {**plain(finding.to_json()), "first_batch": first, "last_batch": last}

    @property
    def findings(self) -> list[dict[str, Any]]:
        """The newest state of each cause, most severe first, then in order of appearance."""
        order = {"critical": 0, "warning": 1, "info": 2}
        return sorted(self._causes.values(), key=lambda each: (order[each["severity"]], each["first_batch"]))

    def owners_at(self, batch: int) -> dict[str, Any] | None:
        """Who owned the memory at this batch, or else at the nearest batch where it was recorded."""
        if not self.owners:
            return None
        nearest = min(self.owners, key=lambda known: (abs(known - batch), known))
        line: dict[str, Any] = plain(json.loads(self.owners[nearest]))
        return line

    def shapes(self) -> dict[str, str]:
        """Input shapes by number, as text like ``input [8, 512] int64``."""
        return {str(number): _shape_text(shapes) for number, shapes in self._shapes.items()}


def _shape_text(shapes: Any) -> str:
    texts = []
    for each in shapes if isinstance(shapes, list) else []:
        if isinstance(each, list) and len(each) == 3 and isinstance(each[1], list):
            dims = ", ".join(str(dim) for dim in each[1])
            name = f"input {each[0]}" if str(each[0]).isdigit() else each[0]
            texts.append(f"{name} [{dims}] {str(each[2]).removeprefix('torch.')}".strip())
        else:
            texts.append(str(each))
    text = "; ".join(texts)
    return text if len(text) <= 300 else text[:300] + " ..."


def details(index: RowIndex, lines: LineIndex, notes: list[str]) -> dict[str, Any]:
    """All that the page shows of a recording besides curves and owners, as JSON values."""
    bands = index.bands()
    stages = index.stages
    sample = index.sample()
    return {
        "session": {key: lines.session[key] for key in _SESSION if key in lines.session},
        "stages": stages,
        "count": index.count,
        "first_batch": bands[0][0] if bands else None,
        "last_batch": bands[-1][1] if bands else None,
        "stage_batches": {_stage(stages, code): count for code, count in sorted(index.stage_counts.items())},
        "peak": as_json(index.peak_row(), stages),
        "medians": _medians(sample, stages),
        "findings": lines.findings,
        "ooms": lines.ooms[-_MOST_OOMS:],
        "owners": sorted(lines.owners),
        "shapes": lines.shapes(),
        "end": lines.end,
        "notes": [*notes, *([lines.broken] if lines.broken else [])],
    }


def summary(index: RowIndex, lines: LineIndex) -> dict[str, Any]:
    """What the list of runs shows of a recording, as JSON values."""
    findings = lines.findings
    rows = index.window(None, None, _SPARKLINE)[0]
    width = max(1, len(rows) // _SPARKLINE)
    peaks = rows["allocated_peak_bytes"]
    return {
        "count": index.count,
        "device": lines.session.get("device"),
        "device_name": lines.session.get("device_name"),
        "device_total_bytes": lines.session.get("device_total_bytes"),
        "peak": as_json(index.peak_row(), index.stages),
        "findings": {level: sum(each["severity"] == level for each in findings) for level in _LEVELS},
        "worst": findings[0] if findings else None,
        "ooms": len(lines.ooms),
        "end": (lines.end or {}).get("reason"),
        "time": plain(float(index.last_row()["time"])) if index.count else lines.session.get("time"),
        "sparkline": [int(peaks[at : at + width].max()) for at in range(0, len(peaks), width)],
    }


def as_json(row: Rows | None, stages: list[str]) -> dict[str, Any] | None:
    """One row as JSON values; the stage by its name."""
    if row is None:
        return None
    values: dict[str, Any] = {}
    for name in row.dtype.names or ():
        value = row[name].item()
        unknown = row.dtype[name].kind == "i" and value == np.iinfo(row.dtype[name]).min
        values[name] = None if unknown else plain(value)
    values["stage"] = _stage(stages, values["stage"])
    return values


def _stage(stages: list[str], code: int | None) -> str:
    return stages[code] if code is not None and 0 <= code < len(stages) else "other"


def _medians(sample: Rows, stages: list[str]) -> dict[str, dict[str, Any]]:
    """The median of each column for each stage, and the commonest input shapes."""
    medians: dict[str, dict[str, Any]] = {}
    for code in np.unique(sample["stage"]).tolist():
        rows = sample[sample["stage"] == code]
        values: dict[str, Any] = {"rows": len(rows)}
        for name in _MEDIANS:
            column = rows[name]
            if column.dtype.kind == "i":
                column = column[column != np.iinfo(column.dtype).min]
            values[name] = plain(float(np.median(column))) if len(column) else None
        shapes, times = np.unique(rows["shapes"][rows["shapes"] >= 0], return_counts=True)
        values["shapes"] = int(shapes[times.argmax()]) if len(shapes) else None
        medians[_stage(stages, code)] = values
    return medians


def thin_bands(bands: list[tuple[int, int, int]], train: int, width: float) -> list[tuple[int, int, int]]:
    """The bands to draw: all but training, neighbours of one stage closer than ``width`` batches joined."""
    joined: dict[int, list[tuple[int, int, int]]] = {}
    for first, last, code in bands:
        if code == train:
            continue
        known = joined.setdefault(code, [])
        if known and first - known[-1][1] <= width:
            known[-1] = (known[-1][0], last, code)
        else:
            known.append((first, last, code))
    return sorted(band for known in joined.values() for band in known)


def marks(index: RowIndex, first: float, last: float, buckets: int) -> dict[str, list[int]]:
    """For each of `MARKS` the batches in a window, at most one a pixel."""
    found: dict[str, list[int]] = {}
    for name in MARKS:
        batches = index.marked(name)
        batches = batches[(batches >= first) & (batches <= last)]
        if len(batches) > buckets:
            width = max(1.0, (last - first) / buckets)
            batches = batches[np.unique((batches - first) // width, return_index=True)[1]]
        found[name] = batches.tolist()
    return found


def chart_head(index: RowIndex, first: float | None, last: float | None, buckets: int, total: int) -> dict[str, Any]:
    """What goes with the rows of a window: stage bands, marks, how many rows the file holds there."""
    bands = index.bands()
    low = first if first is not None else float(bands[0][0]) if bands else 0.0
    high = last if last is not None else float(bands[-1][1]) if bands else 0.0
    train = index.stages.index("train") if "train" in index.stages else -1
    inside = [band for band in bands if band[1] >= low and band[0] <= high]
    return {
        "total": total,
        "count": index.count,
        "stages": index.stages,
        "bands": thin_bands(inside, train, 1.5 * (high - low) / max(1, buckets)),
        "marks": marks(index, low, high, buckets),
    }
