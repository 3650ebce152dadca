"""One run as one HTML file: the Memory tab's page with the recording inside, to open from a disk or to send."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import os
import re
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from memguard.errors import MemGuardError, RecordingError
from memguard.recording.json_lines import parse_line
from memguard.recording.reader import Recording, lies_there
from memguard.report.heat_map import heat_map
from memguard.report.html_details import details, summary
from memguard.report.html_index import RowIndex
from memguard.report.html_lines import LineIndex
from memguard.report.html_ranks import explain_worst, over_ranks
from memguard.report.html_rows import DRAWN, Rows, decimate
from memguard.report.html_snapshot import find_snapshot, snapshot_map

_STATIC = Path(__file__).resolve().parent.parent / "tensorboard_plugin" / "static"
_MOST_SECONDS = 1e9
_BUDGET = 1_000_000
"""Characters for the rows of all ranks: the whole file stays under 1.5 MB."""
_OWNERS_BUDGET = 80_000
_MAP_BUDGET = 120_000
_BAND = 1200
_MOST_RANKS = 12
"""Ranks that are embedded whole; the band and the worst rank's causes are of all."""


def write_html(
    recordings: Iterable[Recording], path: str | os.PathLike[str], *, name: str = "", note: str | None = None
) -> None:
    """Writes the Memory tab's page of one run, its data inside, as one file that needs nothing else.

    Args:
        recordings: The run's recordings: the ranks of one start; of several starts of a rank the last one is shown.
            Each is let go before the next is asked for: hundreds need not be open at once.
        path: The file to write.
        name: What to call the run; by default the name of its directory.
        note: What else to say of it.

    Raises:
        RecordingError: There is no recording, or one of them can no longer be read.
        OSError: The file cannot be written.
    """
    more = [note] if note is not None else []
    newest = {_rank(recording): (recording.path, [*more, *recording.notes]) for recording in recordings}
    if not newest:
        raise RecordingError("there is no recording to show")
    title = name or next(iter(newest.values()))[0].resolve().parent.parent.name
    text = _page(title, _data(title, dict(sorted(newest.items()))))
    Path(path).write_text(text, encoding="utf-8")


def _rank(recording: Recording) -> int:
    rank = recording.session.get("rank")
    return rank if isinstance(rank, int) else 0


def _data(title: str, recordings: dict[int, tuple[Path, list[str]]]) -> dict[str, Any]:
    """What the page's embedded source gives out, by rank; of very many ranks those that matter."""
    indexes: dict[int, RowIndex] = {}
    lines: dict[int, LineIndex] = {}
    for rank, (path, _) in recordings.items():
        indexes[rank] = RowIndex(_reader(path), path.name)
        indexes[rank].refresh(path.stat().st_size)
        lines[rank] = _lines(path.with_suffix(".jsonl"))
    ranks = {rank: summary(index, lines[rank]) for rank, index in indexes.items()}
    shown = _that_matter(ranks)
    told: dict[str, Any] = {}
    for rank in shown:
        (path, notes), index = recordings[rank], indexes[rank]
        told[str(rank)] = {
            "details": {
                **details(index, lines[rank], notes),
                "ooms": _ooms(path.parent, lines[rank]),
            },
            "owners": _thinned(lines[rank].owners, len(shown)),
            "contents": _thinned(lines[rank].contents, len(shown)),
            **_pack(index.rows(0, index.count), _BUDGET // len(shown)),
            "stages": index.stages,
        }
    several = len(indexes) > 1
    windows = {rank: index.window(None, None, _BAND)[0] for rank, index in indexes.items()} if several else {}
    listed = [{"rank": rank, "starts": [recordings[rank][0].name], **ranks[rank]} for rank in shown]
    return {
        "run": {"name": title, "ranks": listed, "others": len(ranks) - len(shown)},
        "told": told,
        "band": over_ranks(windows, _BAND) if several else None,
        "worst": explain_worst(indexes, lines) if several else None,
        "heat": heat_map(windows, {rank: each.session for rank, each in lines.items()}) if several else None,
    }


def _that_matter(ranks: dict[int, dict[str, Any]]) -> list[int]:
    """All ranks if they are few; else those out of memory, the highest, the lowest, and the first."""
    if len(ranks) <= _MOST_RANKS:
        return list(ranks)

    def height(rank: int) -> int:
        return (ranks[rank]["peak"] or {}).get("allocated_peak_bytes") or -1

    order = sorted(ranks, key=lambda rank: (not ranks[rank]["ooms"], -height(rank)))
    return sorted({*order[: _MOST_RANKS - 2], min(ranks, key=height), min(ranks)})


def _reader(path: Path) -> Callable[[int, int], bytes]:
    def read(offset: int, size: int) -> bytes:
        if not lies_there(path):
            return b""
        try:
            with open(path, "rb") as file:
                file.seek(offset)
                return file.read(size)
        except OSError as error:
            raise RecordingError(f"{path} cannot be read: {error.strerror or error}") from None

    return read


def _lines(path: Path) -> LineIndex:
    lines = LineIndex(_reader(path), path.name)
    try:
        lines.refresh(path.stat().st_size)
    except OSError:
        pass  # the recording's own notes tell it
    return lines


def _ooms(folder: Path, lines: LineIndex) -> list[dict[str, Any]]:
    """The post-mortems; the newest one's snapshot as a map, if it is small enough."""
    ooms = [dict(each) for each in lines.ooms[-20:]]
    for oom in ooms[-1:]:
        path = find_snapshot(folder, oom)
        try:
            drawn = snapshot_map(path.read_bytes()) if path is not None else None
        except (MemGuardError, OSError):
            drawn = None
        if drawn is not None and len(json.dumps(drawn)) >= _MAP_BUDGET:
            drawn["history"] = None
        if drawn is not None and len(json.dumps(drawn)) < _MAP_BUDGET:
            oom["map"] = drawn
    return ooms


def _thinned(lines: dict[int, bytes], shares: int) -> list[Any]:
    """As many of some lines as fit, evenly over the run, the last one among them."""
    batches = sorted(lines)[::-1]
    step = 1
    while len(batches[::step]) > 1 and sum(len(lines[batch]) for batch in batches[::step]) > _OWNERS_BUDGET // shares:
        step *= 2
    return [parse_line(lines[batch]) for batch in reversed(batches[::step])]


def _pack(rows: Rows, budget: int) -> dict[str, Any]:
    """Rows as text: for each column the differences of its values, byte by byte, deflated, in base64.

    If not all fit the budget, the rows that keep every maximum are taken.
    """
    chosen, buckets = rows, len(rows)
    while True:
        text = _deflated(chosen)
        if len(text) <= budget or buckets < 100:
            return {"rows": len(chosen), "total": len(rows), "columns": list(DRAWN), "data": text}
        fitting = len(chosen) * budget / len(text)  # rows that would fit; a bucket keeps up to four
        buckets = int(fitting / 4) if chosen is rows else int(buckets * 0.95 * budget / len(text))
        chosen = decimate(rows, buckets)


def _deflated(rows: Rows) -> str:
    planes = []
    for name in DRAWN:
        values = rows[name]
        if values.dtype.kind == "i":
            whole = np.where(values == np.iinfo(values.dtype).min, -1, values)
        else:
            with np.errstate(invalid="ignore"):  # a NaN that signals
                seconds = np.clip(values.astype(np.float64), -_MOST_SECONDS, _MOST_SECONDS)
            whole = np.nan_to_num(np.round(seconds * 1000.0))  # as milliseconds
        deltas = np.diff(whole.astype("<i8"), prepend=np.int64(0))
        planes.append(deltas.view(np.uint8).reshape(-1, 8).T.tobytes())
    return base64.b64encode(zlib.compress(b"".join(planes), 6)).decode()


def _page(title: str, data: dict[str, Any]) -> str:
    script = bundle(_STATIC, "report.js")
    if "</script" in script.lower() or "<!--" in script:
        raise MemGuardError("the page's script cannot be put into HTML: it contains </script or <!--")
    style = (_STATIC / "vendor" / "uPlot.min.css").read_text(encoding="utf-8")
    style += (_STATIC / "app.css").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    rules = (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'"
    )
    embedded = json.dumps(data, allow_nan=False).replace("<", "\\u003c")
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{rules}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>Memory of {html.escape(title)}</title>\n<style>{style}</style>\n</head>\n<body>\n"
        f'<script type="application/json" id="recording">{embedded}</script>\n<script>{script}</script>\n'
        "</body>\n</html>\n"
    )


# The page's modules as one script, for the report in one file: browsers import no modules from a disk.

_IMPORT = re.compile(r'^import (\{[^}]*\}|\w+) from "\./([\w./]+)";$', re.MULTILINE)
_EXPORT = re.compile(r"^export (?:async )?(?:function|class|const) (\w+)", re.MULTILINE)
_DEFAULT = re.compile(r"^export default (\w+);$", re.MULTILINE)


def bundle(folder: Path, entry: str) -> str:
    """One script that does what importing a module does; each module keeps a scope of its own.

    Args:
        folder: Where the modules lie; they import each other as ``import { a, b } from "./x.js";`` on one line.
        entry: The file name of the module to begin with.
    """
    done: dict[str, str] = {}
    _add(folder, entry, done)
    return '"use strict";\n' + "\n".join(done.values())


def _add(folder: Path, name: str, done: dict[str, str]) -> None:
    """Adds a module after those that it imports."""
    text = (folder / name).read_text(encoding="utf-8")
    for _, other in _IMPORT.findall(text):
        if other not in done:
            _add(folder, other, done)
    names = _EXPORT.findall(text) + [f"default: {each}" for each in _DEFAULT.findall(text)]
    text = _DEFAULT.sub("", _IMPORT.sub(_take, text))
    text = re.sub(r"^export (?=(?:async )?(?:function|class|const) )", "", text, flags=re.MULTILINE)
    done[name] = f"const {_variable(name)} = (() => {{\n{text}\nreturn {{ {', '.join(names)} }};\n}})();"


def _take(match: re.Match[str]) -> str:
    wanted = match[1] if match[1].startswith("{") else f"{{ default: {match[1]} }}"
    return f"const {wanted} = {_variable(match[2])};"


def _variable(name: str) -> str:
    return "module_" + re.sub(r"\W", "_", name)
