"""Numbers of the end are true: what a finding says of its holder beside an independent count."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from memguard.records.findings import Finding
from memguard.text.units import format_bytes
from tests.corpus.runner import FOLDER, faulty, run_alone

CODES = frozenset(("MG101", "MG301", "MG302", "MG308"))
"""Rules that say how much a holder keeps at the end."""
NEAR = 0.1
SAMPLE = ("faulty/mg301_logits_kept.py",)
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


def rows_of(path: Path, logdir: Path) -> list[Row]:
    """Each finding of memory that is kept to the end, beside an independent count of its holder."""
    rows = []
    for finding in run_alone(path, logdir).findings:
        if finding.code not in CODES or finding.holder is None or finding.file != str(path) or not finding.bytes:
            continue
        command = [sys.executable, "-W", "ignore", "-m", "tests.truth.count", str(path)]
        done = subprocess.run(
            [*command, finding.function or "<module>", finding.holder],
            stdout=subprocess.PIPE,
            cwd=FOLDER.parents[1],
            check=False,
        )
        counted = json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 and done.stdout else None
        if counted is not None and counted["bytes"] >= LEAST_BYTES:
            rows.append(Row(f"{path.parent.name}/{path.name}", finding, counted["count"], counted["bytes"]))
    return rows


def table(rows: list[Row]) -> str:
    """All rows, those that are not near with a star; then the share that is."""
    near = sum(row.is_near for row in rows)
    return "\n".join([*map(str, rows), f"{near} of {len(rows)} within {NEAR:.0%}"])


def test_of_a_sample_the_bytes_of_the_end_are_true(tmp_path: Path) -> None:
    """Within a tenth of what is let go when the holder is dropped."""
    rows = [row for number, name in enumerate(SAMPLE) for row in rows_of(FOLDER / name, tmp_path / str(number))]
    print(table(rows))
    assert rows and all(row.is_near for row in rows), table(rows)


@pytest.mark.slow
def test_of_the_corpus_the_bytes_of_the_end_are_true(tmp_path: Path) -> None:
    """In nineteen of twenty within a tenth; the table is printed."""
    paths = [path for path in faulty() if path.is_file()]
    rows = [row for number, path in enumerate(paths) for row in rows_of(path, tmp_path / str(number))]
    print(table(rows))
    assert sum(row.is_near for row in rows) >= 0.95 * len(rows), table(rows)
