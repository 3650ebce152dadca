"""What the page tells of a recording besides its curves: session, findings, post-mortems, owners, medians. No torch."""

from __future__ import annotations

from typing import Any

import numpy as np

from memguard.recording.json_lines import plain
from memguard.records.summary import headroom
from memguard.report.html_index import RowIndex
from memguard.report.html_lines import LineIndex
from memguard.report.html_rows import MARKS, Rows
from memguard.rules.explanation import differences

_MOST_OOMS = 20
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
        "headroom_bytes": headroom_of(index, lines),
        "medians": _medians(sample, stages),
        "findings": lines.findings,
        "examples": differences(each["code"] for each in lines.findings),
        "phases": lines.phases(),
        "ooms": lines.ooms[-_MOST_OOMS:],
        "owners": sorted(lines.owners),
        "contents": sorted(lines.contents),
        "shapes": lines.shapes(),
        "end": lines.end,
        "notes": [*lines.told, *notes, *([lines.broken] if lines.broken else [])],
    }


def summary(index: RowIndex, lines: LineIndex) -> dict[str, Any]:
    """What the list of runs shows of a recording, as JSON values."""
    findings = lines.findings
    rows = index.window(None, None, _SPARKLINE)[0]
    width = max(1, len(rows) // _SPARKLINE)
    peaks = rows["allocated_peak_bytes"]
    known = bool(len(peaks)) and peaks.max() >= 0
    return {
        "count": index.count,
        "device": lines.session.get("device"),
        "node": lines.session.get("node"),
        "host": lines.session.get("host"),
        "device_name": lines.session.get("device_name"),
        "device_total_bytes": lines.session.get("device_total_bytes"),
        "peak": as_json(index.peak_row(), index.stages),
        "headroom_bytes": headroom_of(index, lines),
        "findings": {level: sum(each["severity"] == level for each in findings) for level in _LEVELS},
        "worst": findings[0] if findings else None,
        "ooms": len(lines.ooms),
        "end": (lines.end or {}).get("reason"),
        "peers": sorted(lines.peers),
        "time": plain(float(index.last_row()["time"])) if index.count else lines.session.get("time"),
        "sparkline": [max(0, int(peaks[at : at + width].max())) for at in range(0, len(peaks), width)] if known else [],
    }


def headroom_of(index: RowIndex, lines: LineIndex) -> int | None:
    """A recording's headroom in bytes, None where it is unknown."""
    device = lines.session.get("device")
    ran_out = len(index.marked("num_ooms")) > 0 or any(each.get("device") == device for each in lines.ooms)
    return headroom(lines.session.get("device_total_bytes"), index.reserved_peak_bytes(), ran_out=ran_out)


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
            with np.errstate(invalid="ignore"):  # a NaN that signals
                values[name] = plain(float(np.median(column.astype(np.float64)))) if len(column) else None
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
