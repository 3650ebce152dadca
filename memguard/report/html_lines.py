"""A recording's JSON lines, read as they are appended: session, findings, owners, post-mortems. No torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, final

from memguard.recording.json_lines import MOST_FILE_BYTES, parse_line
from memguard.records.findings import Finding
from memguard.records.phases import totals_in
from memguard.report.summaries import fallen_in

_MOST_SHAPES = 4000
_MOST_CODE, _MOST_LINES = 1000, 25
"""Places of which the code is kept, and lines of each; memguard writes fewer."""
_MOST_PHASES = 4000
"""Lines of phases that are kept; the newest of a name sums up all before it."""


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
        self._told: list[tuple[str, str | None, int | None, str | None]] = []
        """Of each line that tells a finding its cause: the last ones are the findings of the end."""
        self._shapes: dict[int, Any] = {}
        self._code: dict[tuple[str, int], dict[str, Any]] = {}
        self.session: dict[str, Any] = {}
        """What the run said of itself, updated by what it learned later."""
        self.owners: dict[int, bytes] = {}
        """The owners lines by batch, unparsed: they are many and seldom asked for."""
        self.contents: dict[int, bytes] = {}
        """The lines of what filled a batch's peak, by batch, unparsed."""
        self.called: dict[str, Any] = {}
        """Where training calls the model: ``file``, ``line`` and ``function``."""
        self.ooms: list[dict[str, Any]] = []
        self.peers: set[int] = set()
        """Ranks that this one saw fall before it stopped."""
        self._phases: list[dict[str, Any]] = []
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
        if size > MOST_FILE_BYTES:
            size = MOST_FILE_BYTES
            self.broken = f"{self._source}: longer than {MOST_FILE_BYTES >> 20} MiB; read up to there"
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
        line = parse_line(text)
        if line is None:
            return False
        kind = line["kind"]
        if kind in ("owners", "contents"):
            if line.get("batch") is not None:
                (self.owners if kind == "owners" else self.contents)[line["batch"]] = text
            return True
        if kind in ("session", "device", "coordinates"):
            self.session.update({key: value for key, value in line.items() if value is not None})
        elif kind == "shapes":
            if line.get("id") is not None and len(self._shapes) < _MOST_SHAPES:
                self._shapes[line["id"]] = line.get("shapes")
        elif kind == "finding":
            self._finding(line)
        elif kind == "code":
            self._take_code(line)
        elif kind == "oom":
            self.ooms.append(line)
        elif kind == "called" and line.get("stage") == "train":
            self.called = self.called or line
        elif kind == "phase":
            self._phases.append(line)
            del self._phases[:-_MOST_PHASES]
        elif kind == "peer":
            self.peers.update(fallen_in([line]))
        elif kind == "end":
            self.end = line
            if (final := line.get("final_findings")) is not None:
                left = set(self._told[max(len(self._told) - final, 0) :])
                self._causes = {cause: known for cause, known in self._causes.items() if cause in left}
        return True

    def _finding(self, line: dict[str, Any]) -> None:
        """Keeps the newest state of a cause, and the batches of the first and the last."""
        try:
            finding = Finding.from_json(line)
            known = self._causes.get(finding.cause)
            batch = finding.batch
        except (ValueError, TypeError, KeyError):  # of another version or damaged: the others stand
            return
        first, last = (min(known["first_batch"], batch), max(known["last_batch"], batch)) if known else (batch, batch)
        began = min((each for each in (finding.since, (known or {}).get("since")) if each is not None), default=None)
        began = began if began is None or began <= first else None  # else it tells nothing
        self._told.append(finding.cause)
        self._causes[finding.cause] = {**finding.to_json(), "since": began, "first_batch": first, "last_batch": last}

    def _take_code(self, line: dict[str, Any]) -> None:
        """Keeps the code around a finding's line, where all of it is there."""
        file, number, first, lines = (line.get(name) for name in ("file", "line", "first", "lines"))
        if file is None or number is None or first is None or lines is None or len(self._code) >= _MOST_CODE:
            return
        if all(isinstance(text, str) for text in lines):
            self._code[file, number] = {"first": first, "lines": lines[:_MOST_LINES]}

    @property
    def findings(self) -> list[dict[str, Any]]:
        """The newest state of each cause: most severe first, then what holds most, then in order of appearance.

        Beside what the finding tells: ``first_batch`` and ``last_batch`` that reported it, and ``code_lines``, the
        code around its line: the number of the ``first`` line and the ``lines``, None where the recording has none.
        """
        order = {"critical": 0, "warning": 1, "info": 2}
        return sorted(
            ({**each, "code_lines": self._code.get((each["file"], each["line"]))} for each in self._causes.values()),
            key=lambda each: (order[each["severity"]], -_size(each), each["first_batch"]),
        )

    def phases(self) -> dict[str, Any]:
        """A row for each phase that the program names, and the stretches of batches they took: first, last, row."""
        rows = totals_in(self._phases)
        number = {name: at for at, name in enumerate(rows)}
        known = [line for line in self._phases if line.get("name") in number]
        stretches = [[first, last, number[line["name"]]] for line in known for first, last in _ranges(line)]
        return {"rows": [row.to_json() for row in rows.values()], "stretches": stretches}

    @property
    def told(self) -> list[str]:
        """What the run itself noted at its end: what was switched off or left out."""
        return [note for note in (self.end or {}).get("notes") or () if isinstance(note, str)]

    def owners_at(self, batch: int) -> dict[str, Any] | None:
        """Who owned the memory at this batch, or else at the nearest batch where it was recorded."""
        return _nearest(self.owners, batch)

    def contents_at(self, batch: int) -> dict[str, Any] | None:
        """What filled the peak of this batch, or else of the nearest whose contents were recorded."""
        return _nearest(self.contents, batch)

    def shapes_of(self, number: int) -> list[Any] | None:
        """The input shapes behind a record's number, as they were recorded."""
        shapes = self._shapes.get(number)
        return shapes if isinstance(shapes, list) else None

    def shapes(self) -> dict[str, str]:
        """Input shapes by number, as text like ``input [8, 512] int64``."""
        return {str(number): _shape_text(shapes) for number, shapes in self._shapes.items()}


def _ranges(line: dict[str, Any]) -> Iterator[tuple[int, int]]:
    """First and last batches of the phases that a line tells of; of an older recording the newest of them alone."""
    for each in line.get("ranges") or [[line.get("batch"), line.get("last_batch")]]:
        if isinstance(each, list) and len(each) == 2 and all(type(batch) is int for batch in each):
            yield each[0], max(each)


def _nearest(lines: dict[int, bytes], batch: int) -> dict[str, Any] | None:
    if not lines:
        return None
    return parse_line(lines[min(lines, key=lambda known: (abs(known - batch), known))])


def _size(finding: dict[str, Any]) -> float:
    nbytes = finding.get("bytes")
    return nbytes if isinstance(nbytes, (int, float)) else 0


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
