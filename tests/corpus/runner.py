"""Runs one program of the corpus under memguard and compares what is found with the marks in its text."""

from __future__ import annotations

import contextlib
import gc
import io
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from memguard.findings import Finding, Severity
from memguard.integrations.script import run_script

FOLDER = Path(__file__).parent
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
    file: str | None = None
    """The file of the program in which it stands."""


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
        return any(mark.line is None or (f.file, f.line) == (mark.file, mark.line) for f in self.of(mark))

    def right_holder(self, mark: Mark) -> bool:
        """Whether it names the holder."""
        return mark.holder is None or any(mark.holder in (finding.holder or "") for finding in self.of(mark))

    @property
    def alarms(self) -> list[Finding]:
        """Findings of warning or worse that no mark accounts for; one at a wrong line counts against its mark."""
        marked = {(mark.code, mark.line and mark.file, mark.line) for mark in self.marks}
        missed = {mark.code for mark in self.marks if not self.right_line(mark)}
        worse = [finding for finding in self.findings if finding.severity is not Severity.INFO]
        return [
            f for f in worse if f.code not in missed and not marked & {(f.code, f.file, f.line), (f.code, None, None)}
        ]


def marks_of(path: Path) -> list[Mark]:
    """The faults marked in a program, which is a file or a folder of files."""
    marks = []
    for file in sorted(path.glob("*.py")) if path.is_dir() else [path]:
        for number, text in enumerate(file.read_text().splitlines(), 1):
            if match := _MARK.search(text):
                line = None if text.startswith("# !") else number
                marks.append(Mark(match[1], line, None if match[2] == "-" else match[2], str(file)))
    return marks


def _programs(folder: str) -> list[Path]:
    """The programs in a folder: files, and folders with a main.py."""
    return sorted([*(FOLDER / folder).glob("*.py"), *(main.parent for main in (FOLDER / folder).glob("*/main.py"))])


FAULTY = [*_programs("faulty"), *(path for path in _programs("retold") if marks_of(path))]
HEALTHY = [*_programs("healthy"), *(path for path in _programs("retold") if not marks_of(path))]


def run(path: Path, logdir: Path, *, device: str | None = None) -> Outcome:
    """Runs a program, observed only.

    Args:
        path: The program: a file, or a folder with a main.py.
        logdir: Where the recording goes.
        device: The device to watch; None is the virtual one that the program names, or one of 1 GiB. On any other,
            faults that only an allocator's numbers show are not expected.
    """
    script = path / "main.py" if path.is_dir() else path
    named = _DEVICE.search(script.read_text())
    virtual = named[1] if named else "virtual:1GiB"
    options = {"device": device or virtual, "logdir": str(logdir), "validation": "warn"}
    gc.collect()  # what the program before left behind is none of this one's memory
    output, loaded = io.StringIO(), set(sys.modules)
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        code, summaries = run_script(str(script), [], options, module=False)
    for name in [n for n in set(sys.modules) - loaded if _belongs_to(sys.modules[n], path)]:
        del sys.modules[name]
    marks = [mark for mark in marks_of(path) if device is None or mark.code not in ALLOCATOR_RULES]
    # The process that runs this has code of its own loaded, which is not the program's.
    tests = str(FOLDER.parent) + os.sep
    findings = [f for summary in summaries for f in summary.findings]
    findings = [f for f in findings if f.file is None or f.file.startswith(str(path)) or not f.file.startswith(tests)]
    return Outcome(marks, findings, code, output.getvalue())


def _belongs_to(module: ModuleType, path: Path) -> bool:
    """Whether a module is a file of the program's folder."""
    return path.is_dir() and str(getattr(module, "__file__", None) or "").startswith(str(path))
