"""What a finding says that its holder keeps at the end, beside an independent count of the same."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from memguard.records.findings import Finding
from memguard.text.units import format_bytes
from tests.corpus.forked import run_forked
from tests.corpus.runner import FOLDER

CODES = frozenset(("MG101", "MG301", "MG302", "MG308"))
"""Rules that say how much a holder keeps at the end."""
NEAR = 0.1
LEAST_BYTES = 4096
"""Below it an allocator's blocks are larger than what lies in them."""


@dataclass(frozen=True)
class Row:
    """One finding beside the count."""

    program: str
    finding: Finding
    count: int | None
    bytes: int

    @property
    def is_near(self) -> bool:
        """Whether the finding's bytes are within a tenth of the count."""
        return abs((self.finding.bytes or 0) - self.bytes) <= NEAR * max(self.bytes, 1)

    def __str__(self) -> str:
        said, mark = self.finding, " " if self.is_near else "*"
        told = f"{said.count:>6} {format_bytes(said.bytes):>10}"
        counted = f"{self.count!s:>6} {format_bytes(self.bytes):>10}"
        return f"{mark} {self.program:60} {said.code} {said.holder or '-':30} {told} {counted}"


def rows_of(path: Path) -> list[Row]:
    """Each finding of memory that is kept to the end of a program, beside an independent count of its holder."""
    rows: list[Row] = []
    if "# runs out of memory" in path.read_text():
        return rows  # the count is of a run on the CPU, which goes on
    outcome = run_forked(path)
    found = [] if isinstance(outcome, str) else outcome.findings
    # Each run of a Trainer is one of memguard's; the count is of the end of the last one.
    for finding in {(one.code, one.file, one.line, one.holder): one for one in found}.values():
        if finding.code not in CODES or finding.holder is None or finding.file != str(path) or not finding.bytes:
            continue
        if "gathered" in finding.message:
            continue  # counts the weights that were gathered, not all that the model has
        counted = [_counted(path, finding, name) for name in (finding.holder, *_beside(finding))]
        if all(counted) and (nbytes := sum(one["bytes"] for one in counted)) >= LEAST_BYTES:
            elements = [one["count"] for one in counted]
            count = None if None in elements else sum(elements)
            rows.append(Row(f"{path.parent.name}/{path.name}", finding, count, nbytes))
    return rows


def _beside(finding: Finding) -> list[str]:
    """Names that are filled beside the holder, and that the finding counts with it."""
    found = re.search(r"keeps, with (.*?) beside it,", finding.message)
    return re.findall(r"`(.+?)`", found[1]) if found else []


def _counted(path: Path, finding: Finding, holder: str) -> dict[str, int]:
    """What a name of the program holds at the end; nothing where it was not met."""
    command = [sys.executable, "-W", "ignore", "-m", "tests.truth.count", str(path)]
    done = subprocess.run(
        [*command, finding.function or "<module>", holder, finding.code],
        stdout=subprocess.PIPE,
        cwd=FOLDER.parents[1],
        check=False,
    )
    answer = json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 and done.stdout else None
    return answer or {}


def table(rows: list[Row]) -> str:
    """All rows, those that are not near with a star; then the share that is."""
    near = sum(row.is_near for row in rows)
    return "\n".join([*map(str, rows), f"{near} of {len(rows)} within {NEAR:.0%}"])
