"""Runs one program of the corpus under memguard and compares what is found with the marks in its text."""

from __future__ import annotations

import contextlib
import gc
import io
import os
import re
from dataclasses import dataclass
from pathlib import Path

from memguard.findings import Finding, Severity
from memguard.integrations.script import run_script

FOLDER = Path(__file__).parent
FAULTY = sorted((FOLDER / "faulty").glob("*.py"))
HEALTHY = sorted((FOLDER / "healthy").glob("*.py"))
_MARK = re.compile(r"# !(MG\d+) (\S+)\s*$")
_DEVICE = re.compile(r"^# device: (\S+)$", re.MULTILINE)
ALLOCATOR_RULES = frozenset("MG303 MG304 MG305 MG309 MG310 MG401 MG402 MG501 MG502 MG503 MG504".split())
"""Rules that judge by the allocator's numbers, which the host does not have."""


@dataclass(frozen=True)
class Mark:
    """A planted fault."""

    code: str
    line: int | None
    """None for a fault without a line: the mark stands in a comment of its own."""
    holder: str | None


@dataclass(frozen=True)
class Outcome:
    """What came of one program."""

    marks: list[Mark]
    findings: list[Finding]
    exit_code: int
    output: str

    def of(self, mark: Mark) -> list[Finding]:
        """Findings of a mark's rule."""
        return [finding for finding in self.findings if finding.code == mark.code]

    def found(self, mark: Mark) -> bool:
        """Whether the rule fired at all."""
        return bool(self.of(mark))

    def right_line(self, mark: Mark) -> bool:
        """Whether it names the marked line."""
        return any(mark.line is None or finding.line == mark.line for finding in self.of(mark))

    def right_holder(self, mark: Mark) -> bool:
        """Whether it names the holder."""
        return mark.holder is None or any(mark.holder in (finding.holder or "") for finding in self.of(mark))

    @property
    def alarms(self) -> list[Finding]:
        """Findings of warning or worse that no mark accounts for; one at a wrong line counts against its mark."""
        lines = {(mark.code, mark.line) for mark in self.marks}
        missed = {mark.code for mark in self.marks if not self.right_line(mark)}
        worse = [finding for finding in self.findings if finding.severity is not Severity.INFO]
        return [f for f in worse if f.code not in missed and not lines & {(f.code, f.line), (f.code, None)}]


def marks_of(path: Path) -> list[Mark]:
    """The faults marked in a program."""
    marks = []
    for number, text in enumerate(path.read_text().splitlines(), 1):
        if match := _MARK.search(text):
            line = None if text.startswith("# !") else number
            marks.append(Mark(match[1], line, None if match[2] == "-" else match[2]))
    return marks


def run(path: Path, logdir: Path, *, device: str | None = None) -> Outcome:
    """Runs a program, observed only.

    Args:
        path: The program.
        logdir: Where the recording goes.
        device: The device to watch; None is the virtual one that the program names, or one of 1 GiB. On any other,
            faults that only an allocator's numbers show are not expected.
    """
    named = _DEVICE.search(path.read_text())
    virtual = named[1] if named else "virtual:1GiB"
    options = {"device": device or virtual, "logdir": str(logdir), "validation": "warn"}
    gc.collect()  # what the program before left behind is none of this one's memory
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        code, summaries = run_script(str(path), [], options, module=False)
    marks = [mark for mark in marks_of(path) if device is None or mark.code not in ALLOCATOR_RULES]
    # The process that runs this has code of its own loaded, which is not the program's.
    tests = str(FOLDER.parent) + os.sep
    findings = [f for summary in summaries for f in summary.findings]
    findings = [f for f in findings if f.file is None or f.file == str(path) or not f.file.startswith(tests)]
    return Outcome(marks, findings, code, output.getvalue())
