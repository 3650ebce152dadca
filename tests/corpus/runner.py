"""Runs one program of the corpus under memguard and compares what is found with the marks in its text."""

from __future__ import annotations

import contextlib
import gc
import io
import os
import pickle
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from memguard.records.findings import Finding, Severity
from memguard.integrations.script import run_script
from memguard.recording.reader import Recording
from memguard.records.summary import Summary
from tests.corpus.fixed_costs import fixed_costs
from tests.truth.silence import silence_in

FOLDER = Path(__file__).parent
_MARK = re.compile(r"# !(MG\d+) (\S.*?)\s*$")
_DEVICE = re.compile(r"^# device: (\S+)$", re.MULTILINE)
_RUNS_OUT = re.compile(r"^# runs out of memory$", re.MULTILINE)
_ALLOCATOR = re.compile(r"^# needs an allocator: .+$", re.MULTILINE)
_TOLD_BY = re.compile(r"^# (MG\d+) by batch (\d+)\b", re.MULTILINE)
TOLD_BY = {"MG101": 12, "MG102": 12, "MG106": 12, "MG201": 4}
"""Batches of its stage in which a fault must be told; a program may say otherwise, and why."""
ALLOCATOR_RULES = frozenset("MG303 MG304 MG305 MG309 MG310 MG313 MG401 MG402 MG501 MG502 MG503 MG504".split())
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
    seen: dict[Finding, int]
    """For each finding, how many batches of its stage it took."""
    bounds: dict[str, int]
    """For each code whose delay counts, by which batch it must be told."""
    tolerated: frozenset[tuple[str, str | None, int | None]] = frozenset()
    """Rules and places of which a finding is neither expected nor an alarm."""
    silences: tuple[str, ...] = ()
    """What a summary kept quiet about though the records show it."""

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
        """Whether one finding names the marked line and, exactly, the holder."""
        place = None if mark.line is None else (mark.file, mark.line)
        return any(place in (None, (f.file, f.line)) and f.holder == mark.holder for f in self.of(mark))

    def delay(self, mark: Mark) -> int | None:
        """Batches of its stage until the fault was told, for the codes whose delay counts."""
        found = self.of(mark)
        if mark.code == "MG201":  # in training mode, or in a hook, evaluation makes no batches of its own
            found = [finding for finding in found if finding.stage.evaluates]
        return min((self.seen[f] for f in found), default=None) if mark.code in self.bounds else None

    @property
    def complaints(self) -> list[str]:
        """What is not as marked: a fault that is missed, at another place or late, and what is told without one."""
        told = [(f.code, f.severity.value, f.line, f.holder, self.seen[f]) for f in self.findings]
        lines = []
        for mark in self.marks:
            wanted = f"{mark.code} line {mark.line} {mark.holder}"
            if not self.right_holder(mark):
                what = "HOLDER" if self.right_line(mark) else "LINE" if self.found(mark) else "MISSED"
                lines.append(f"{what} {wanted}, told {told}")
            if (delay := self.delay(mark) or 0) > (bound := self.bounds.get(mark.code, 0)):
                lines.append(f"LATE {wanted}: told after {delay} batches, not {bound}")
        alarms = (f"ALARM {f.code} {f.severity.value} line {f.line}: {f.message}" for f in self.alarms)
        return [*lines, *alarms, *(f"SILENT {text}" for text in self.silences)]

    @property
    def alarms(self) -> list[Finding]:
        """Findings of warning or worse that no mark accounts for; one at a wrong line counts against its mark."""
        marked = {(mark.code, mark.line and mark.file, mark.line) for mark in self.marks} | self.tolerated
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


def virtual_of(path: Path) -> str:
    """The virtual device that a program names, or one of 1 GiB."""
    named = _DEVICE.search((path / "main.py" if path.is_dir() else path).read_text())
    return named[1] if named else "virtual:1GiB"


def exit_code_of(path: Path, device: str | None) -> int:
    """How a program ends: some run out of memory and do not catch it, where there is a device to fill."""
    return int(path.is_file() and device is None and bool(_RUNS_OUT.search(path.read_text())))


def faulty() -> list[Path]:
    """All programs with a fault. No global: the less lies about in this process, the sooner memguard is through it."""
    return [path for path in programs() if path.parent.name == "faulty" or marks_of(path)]


def healthy() -> list[Path]:
    """All programs without one."""
    return [path for path in programs() if path.parent.name != "faulty" and not marks_of(path)]


def programs() -> list[Path]:
    """All programs that are to be told as marked: files, and folders with a main.py."""
    return sorted(path for name in ("faulty", "healthy", "retold", "retold_again") for path in _in(FOLDER / name))


def known_misses() -> list[Path]:
    """Programs that are not told as marked on the virtual device, each with a line why."""
    return sorted(_in(FOLDER / "known_misses"))


def _in(folder: Path) -> list[Path]:
    return [*folder.glob("*.py"), *(main.parent for main in folder.glob("*/main.py"))]


def run(
    path: Path, logdir: Path, *, device: str | None = None, times: float = 1.0, owns_process: bool = False
) -> Outcome:
    """Runs a program, observed only. What looking costs is the same in every run: see `fixed_costs`.

    Args:
        path: The program: a file, or a folder with a main.py.
        logdir: Where the recording goes.
        device: The device to watch; None is the virtual one that the program names, or one of 1 GiB. On any other
            than "cuda", faults that only an allocator's numbers show are not expected.
        times: Looks cost so many times what they do.
        owns_process: Whether the process is the program's own, as under ``memguard run``: what it has in its main
            module is still there when the run ends.
    """
    script = path / "main.py" if path.is_dir() else path
    options = {"device": device or virtual_of(path), "logdir": str(logdir), "validation": "warn"}
    bounds = {**TOLD_BY, **{code: int(number) for code, number in _TOLD_BY.findall(script.read_text())}}
    gc.collect()
    gc.freeze()  # what the program before left behind is none of this one's memory, and not looked at again
    own = [file.stem for file in path.glob("*.py")] if path.is_dir() else []
    others = {name: sys.modules.pop(name) for name in own if name in sys.modules}  # what a test has under such a name
    output, loaded = io.StringIO(), set(sys.modules)
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output), fixed_costs(times):
        code, summaries = run_script(str(script), [], options, module=False, owns_process=owns_process)
    for name in [n for n in set(sys.modules) - loaded if _belongs_to(sys.modules[n], path)]:
        del sys.modules[name]
    sys.modules.update(others)
    marked = marks_of(path)
    needs = _ALLOCATOR.search(script.read_text())
    tells = device in (None, "cuda")
    marks = [mark for mark in marked if tells or not (needs or mark.code in ALLOCATOR_RULES)]
    # A cache is told by what fills it, before any number tells: on the host it may be told, and need not be.
    tolerated = frozenset((m.code, m.file, m.line) for m in marked if device == "cpu" and m not in marks)
    # The process that runs this has code of its own loaded, which is not the program's.
    tests = str(FOLDER.parent) + os.sep
    findings = [f for summary in summaries for f in summary.findings]
    findings = [f for f in findings if f.file is None or f.file.startswith(str(path)) or not f.file.startswith(tests)]
    seen = {finding: _batches_seen(finding, summaries) for finding in findings}
    recordings = (Recording.open(summary.recording) for summary in summaries if summary.recording is not None)
    silences = tuple(text for recording in recordings if (text := silence_in(recording)))
    return Outcome(marks, findings, code, output.getvalue(), seen, bounds, tolerated, silences)


def _batches_seen(finding: Finding, summaries: list[Summary]) -> int:
    """Batches of a finding's stage up to the one after which it was told."""
    for summary in summaries:
        if finding in summary.findings and summary.recording is not None:
            records = Recording.open(summary.recording).records()
            return sum(1 for record in records if record.stage is finding.stage and record.batch <= finding.batch)
    return 0


def _belongs_to(module: ModuleType, path: Path) -> bool:
    """Whether a module is a file of the program's folder."""
    return path.is_dir() and str(getattr(module, "__file__", None) or "").startswith(str(path))


def run_alone(path: Path, logdir: Path, *, device: str | None = None) -> Outcome:
    """The same in a process of its own, as a user runs it: nothing of other programs lies about there."""
    code = (
        "import pickle, sys; from pathlib import Path; from tests.corpus.runner import run; "
        "path, logdir, device = sys.argv[1:]; outcome = run(Path(path), Path(logdir), device=device or None); "
        "sys.stdout.buffer.write(pickle.dumps(outcome))"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, str(path), str(logdir), device or ""],
        stdout=subprocess.PIPE,
        cwd=FOLDER.parents[1],
        check=True,
    )
    outcome: Outcome = pickle.loads(done.stdout)
    return outcome
