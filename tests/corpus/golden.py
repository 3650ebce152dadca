"""What memguard tells of each program of the corpus, as a file to compare with: one line for each finding."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from memguard.records.findings import Finding, Severity
from tests.corpus.runner import FOLDER, Outcome

FILE = FOLDER / "golden.tsv"
_COLUMNS = ("device", "program", "code", "severity", "line", "holder", "batch")
_NOTHING = "-"
_OF_TIME = ("later", "earlier")
_FEW_BATCHES, _SLACK = 5, 0.25
"""By how much the batch of a finding may differ, in batches or as a share: garbage collections and threads move it."""


@dataclass(frozen=True, order=True)
class Told:
    """One finding, as far as it is compared."""

    code: str
    severity: str
    line: str
    """Like ``12``; ``main.py:12`` in a program of several files, or where the file is not the program's."""
    holder: str
    batch: int
    """After how many batches of its stage it was told."""

    @property
    def is_remark(self) -> bool:
        """Whether nobody is warned."""
        return self.severity == Severity.INFO.value

    def __str__(self) -> str:
        return f"{self.code} {self.severity} line {self.line} {self.holder} at batch {self.batch}"


@dataclass(frozen=True, order=True)
class Change:
    """One difference between two runs of a program."""

    kind: str
    """"lost", "gained", "line", "holder", "severity", "later" or "earlier"."""
    program: str
    text: str
    is_minor: bool = False
    """Whether it is of remarks alone, or of the batch: garbage collections, threads and a busy machine move these."""


Results = Mapping[tuple[str, str], tuple[Told, ...]]
"""What is told, by device and program."""


def name_of(path: Path) -> str:
    """A program's name in the file, like ``retold/mg101_history.py``."""
    return f"{path.parent.name}/{path.name}"


def told_of(path: Path, outcome: Outcome | str) -> tuple[Told, ...]:
    """What is told of a program, in order; that it does not end well counts as something that is told."""
    if isinstance(outcome, str):
        return (Told("no outcome", "-", "-", "-", 0),)
    told = [
        Told(f.code, f.severity.value, _line(path, f), f.holder or _NOTHING, outcome.seen[f]) for f in outcome.findings
    ]
    if outcome.exit_code:
        told.append(Told(f"exit code {outcome.exit_code}", "-", "-", "-", 0))
    return tuple(sorted(told))


def _line(path: Path, finding: Finding) -> str:
    if finding.line is None:
        return _NOTHING
    if path.is_file() and finding.file == str(path):
        return str(finding.line)
    return f"{Path(finding.file or _NOTHING).name}:{finding.line}"


def read(file: Path = FILE) -> dict[tuple[str, str], tuple[Told, ...]]:
    """The results in a file."""
    results: dict[tuple[str, str], tuple[Told, ...]] = {}
    for text in file.read_text().splitlines()[1:]:
        device, program, code, severity, line, holder, batch = text.split("\t")
        told = () if code == _NOTHING else (Told(code, severity, line, holder, int(batch)),)
        results[device, program] = results.get((device, program), ()) + told
    return results


def write(results: Results, file: Path = FILE) -> None:
    """Writes results, sorted, so that a change of one program is a change of its lines."""
    lines = [_COLUMNS]
    for (device, program), told in sorted(results.items()):
        for t in told:
            lines.append((device, program, t.code, t.severity, t.line, t.holder, str(t.batch)))
        if not told:
            lines.append((device, program, *[_NOTHING] * 4, "0"))
    whole = file.with_suffix(".new")
    whole.write_text("".join("\t".join(line) + "\n" for line in lines))
    whole.replace(file)  # never half of it


def changes(before: Results, after: Results) -> list[Change]:
    """What differs for the programs that are in `after`; one that was not there before gains all that is told."""
    found = []
    for key, told in after.items():
        device, program = key
        name = f"{device} {program}"
        old, new = Counter(before.get(key, ())), Counter(told)
        lost, gained = list((old - new).elements()), list((new - old).elements())
        for same in (("line", "holder"), ("line",), ("holder",), ()):
            for was in list(lost):
                now = next((t for t in gained if t.code == was.code and _equal(t, was, same)), None)
                if now is not None:
                    lost.remove(was)
                    gained.remove(now)
                    minor = was.is_remark and now.is_remark
                    found += [Change(kind, name, text, minor or kind in _OF_TIME) for kind, text in _between(was, now)]
        found += [Change("lost", name, str(each), each.is_remark) for each in lost]
        found += [Change("gained", name, str(each), each.is_remark) for each in gained]
    return sorted(found)


def _equal(one: Told, other: Told, fields: Iterable[str]) -> bool:
    return all(getattr(one, field) == getattr(other, field) for field in fields)


def _between(was: Told, now: Told) -> list[tuple[str, str]]:
    """In what two findings of one rule differ, in words."""
    place = f"{now.code} line {now.line} {now.holder}"
    found = []
    if was.line != now.line:
        found.append(("line", f"{place}: was line {was.line}"))
    if was.holder != now.holder:
        found.append(("holder", f"{place}: was {was.holder}"))
    if was.severity != now.severity:
        found.append(("severity", f"{place}: {was.severity} -> {now.severity}"))
    if abs(now.batch - was.batch) > max(_FEW_BATCHES, _SLACK * was.batch):
        kind = "later" if now.batch > was.batch else "earlier"
        found.append((kind, f"{place}: batch {was.batch} -> {now.batch}"))
    return found
