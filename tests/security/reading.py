"""A stranger's recording, and everything that memguard's readers make of one."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from memguard.errors import MemGuardError
from memguard.recording.format import HEADER_BYTES
from memguard.recording.reader import Recording, find_recordings
from memguard.report.compare import compare
from memguard.report.html import write_html
from memguard.report.html_details import chart_head
from memguard.report.runs import load_run
from memguard.report.starts import page_note, start_lines
from memguard.report.text import render
from memguard.tensorboard_plugin.store import Store
from memguard.text.terminal import one_line
from tests.security.mutations import bend_lines, bend_recording
from tests.tensorboard_plugin.make_logdir import make_leak

ROWS = 40
"""Of the seed: few, so that many inputs can be tried."""


class Stranger:
    """One run directory, written anew for each input; in one of five, a second rank stands beside what was bent.

    Args:
        logdir: Where it is.
    """

    def __init__(self, logdir: Path) -> None:
        writer = make_leak(logdir)
        writer.close()
        self.logdir, self.path = logdir, writer.path
        self.data = self.path.read_bytes()[: HEADER_BYTES + ROWS * 128]
        written = self.path.with_suffix(".jsonl").read_bytes().splitlines()
        self.lines = _of_every_kind([json.loads(line) for line in written])
        self._write_a_peer()
        self.write(self.data, b"".join(json.dumps(line).encode() + b"\n" for line in self.lines))

    def _write_a_peer(self) -> None:
        """A second rank, so that ranks are compared."""
        self.peer = self.path.with_name(self.path.name.replace("rank00000", "rank00001"))
        self.peer.write_bytes(self.data)
        told = [{**line, "rank": 1} if line["kind"] == "session" else line for line in self.lines]
        self.peer.with_suffix(".jsonl").write_bytes(b"".join(json.dumps(line).encode() + b"\n" for line in told))

    def write(self, data: bytes, lines: bytes) -> None:
        """Both files."""
        self.path.write_bytes(data)
        self.path.with_suffix(".jsonl").write_bytes(lines)

    def bend(self, chance: random.Random) -> None:
        """The next input."""
        away = self.peer.with_suffix(".away")
        if chance.random() < 0.2:
            if away.exists():
                away.rename(self.peer)
        elif self.peer.exists():
            self.peer.rename(away)
        data = bend_recording(chance, self.data) if chance.random() < 0.5 else self.data
        self.write(data, bend_lines(chance, self.lines))


def _of_every_kind(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A few lines of each kind, and one of a kind that is not known."""
    kept: dict[str, list[dict[str, Any]]] = {"unknown": [{"kind": "unknown", "rank": 1}]}
    for line in lines:
        same = kept.setdefault(line["kind"], [])
        if len(same) < 3:
            same.append(line)
    kept["peer"] = [{"kind": "peer", "rank": 1, "reason": "out of memory", "batch": 12, "time": 1.0}]
    return [line for same in kept.values() for line in same]


def read_in_words(logdir: Path) -> str:
    """What ``memguard report`` does: text, JSON, and a comparison with itself."""
    found = load_run([str(logdir)])
    told = found.to_json()
    told["compare"] = compare(found.summary, found.summary)
    json.loads(json.dumps(told, default=str))
    return "\n".join([render(found.summary), *map(one_line, start_lines(found.starts))])


def read_records(logdir: Path) -> str:
    """What a program does with a `Recording`."""
    for path in find_recordings(logdir):
        recording = Recording.open(path)
        for record in recording.records():
            recording.shapes(record.shapes)
        _ = recording.findings, recording.session, recording.end, recording.column("allocated_peak_bytes")
    return ""


def read_page(logdir: Path) -> str:
    """What ``memguard report --html`` does."""
    target = logdir.parent / "page.html"
    found = load_run([str(logdir)])
    write_html([Recording.open(path) for path in found.paths], target, note=page_note(found.starts))
    return target.read_text(encoding="utf-8")


def read_for_the_tab(logdir: Path) -> str:
    """What the Memory tab's server answers for a run."""
    told = []
    for run in Store(str(logdir)).runs().values():
        for process in (process for starts in run.processes.values() for process in starts):
            process.refresh()
            told += [process.summary(), process.lines.owners_at(12)]
            if process.index is not None:
                told += [process.details(), chart_head(process.index, None, None, 100, process.index.count)]
    return json.dumps(told, allow_nan=False)


def readers() -> Iterator[Callable[[Path], str]]:
    """Each way to read a recording."""
    yield from (read_in_words, read_records, read_for_the_tab, read_page)


def survives(read: Callable[[Path], str], logdir: Path) -> str | None:
    """What a reader makes of an input; None where it refuses it as documented."""
    try:
        return read(logdir)
    except MemGuardError as error:
        assert "\n" not in str(error), "an error is one line"
        return None
