"""One table of everything that is measured: ``make bench``, or ``python -m tests.bench [--quick] [NAME ...]``.

Each file here with a function ``measure`` is a subject; each runs in a process of its own, and one that fails says so
while the others go on. Subjects of `ON_NULL_GPU` run once more on the null GPU where its environment stands.
"""

from __future__ import annotations

import argparse
import datetime
import importlib
import inspect
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from tests.bench.page import CLAIMS, RESULTS, Results, Table, broken, load, merged
from tests.bench.rows import Row
from tests.nullgpu import environment

FOLDER = Path(__file__).parent
_PARTS = ("backends", "footprint", "further_device", "probes")
ON_NULL_GPU = (*_PARTS, "in_run", "lightning_loop", "long_step", "plain_loop")
SLACK = 1.5
"""An aim counts as missed, and a published figure as broken, from so many times its value on: machines differ."""
_VERSIONS = """
import importlib.metadata as m
print(*(f'{n} {m.version(n)}' for n in ('torch', 'lightning', 'tensorboard')), sep=', ')
"""


def subjects() -> list[str]:
    """The names of all files here that measure something."""
    has_measure = re.compile(r"^def measure\(", re.MULTILINE)
    return sorted(path.stem for path in FOLDER.glob("*.py") if has_measure.search(path.read_text(encoding="utf-8")))


def main() -> int:
    """Runs what is asked for and prints the table; status 1 if one failed, or (--check) costs more than it may."""
    options = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    options.add_argument("names", nargs="*", metavar="NAME", help=f"what to measure: {', '.join(subjects())} (all)")
    options.add_argument("--quick", action="store_true", help="few repeats: rough figures in a fraction of the time")
    options.add_argument("--save", action="store_true", help=f"keep the figures in {RESULTS.name}, for the pages")
    options.add_argument("--check", action="store_true", help="fail where an aim, or what the README claims, is missed")
    options.add_argument("--json", action="store_true", help="in this process: a row a line, as JSON")
    chosen = options.parse_args()
    if unknown := sorted(set(chosen.names) - set(subjects())):
        options.error(f"there is no {', '.join(unknown)}; there are {', '.join(subjects())}")
    if chosen.json:
        for row in (row for name in chosen.names for row in _measure(name, quick=chosen.quick)):
            print(json.dumps(row), flush=True)
        return 0
    results = _header(chosen.quick)
    print(f"{results['date']}, {results['machine']}")
    names = chosen.names or sorted({claim.subject for claim in CLAIMS} if chosen.check else subjects())
    results["tables"].append(_table([sys.executable], names, chosen.quick))
    if environment.stamp(environment.folder()).exists():
        null_gpu = [sys.executable, "-m", "tests.nullgpu.run", "--total", "24GiB", "--", "python"]
        results["tables"].append(_table(null_gpu, [name for name in names if name in ON_NULL_GPU], chosen.quick))
    else:
        print("\nno null GPU: make null-gpu")
    if chosen.save:
        kept = merged(load(RESULTS.read_text(encoding="utf-8")), results) if chosen.names else results
        RESULTS.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    complete = all(rows is not None for table in results["tables"] for rows in table["subjects"].values())
    return 0 if complete and not (chosen.check and _missed(results)) else 1


def _header(quick: bool) -> Results:
    cores = os.cpu_count()
    machine = f"{cores} cores, {platform.machine()}, Python {platform.python_version()}"
    return {"date": str(datetime.date.today()), "machine": machine, "quick": quick, "tables": []}


def _table(python: list[str], names: list[str], quick: bool) -> Table:
    """Measures some subjects in one environment, and prints their rows as they come."""
    versions = subprocess.run([*python, "-c", _VERSIONS], capture_output=True, text=True, check=False).stdout.strip()
    where = "on the null GPU" if len(python) > 1 else "on this machine"
    print(f"\n{where}: {versions}", flush=True)
    table: Table = {"where": where, "versions": versions, "subjects": {}}
    for name in names:
        command = [*python, "-W", "ignore", "-m", "tests.bench", "--json", name, *(["--quick"] if quick else [])]
        print(f"\n{name}", flush=True)
        table["subjects"][name] = _rows(command)
    return table


def _rows(command: list[str]) -> list[Row] | None:
    """The rows of one subject, each printed as it comes; None if it fails."""
    rows = []
    with tempfile.TemporaryFile("w+", encoding="utf-8") as errors:
        running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=FOLDER.parents[1])
        with running:
            for line in running.stdout or ():
                if not line.startswith('["'):
                    continue  # a library's own word
                rows.append(row := Row(*json.loads(line)))
                aim = f"  (aim: at most {row.at_most:g}{', missed' if _misses(row) else ''})" if _has_aim(row) else ""
                print(f"  {row.label:66}{row.text:>12} {row.unit}{aim}", flush=True)
        if not running.returncode:
            return rows
        errors.seek(0)
        print(f"  failed: {(errors.read().strip().splitlines() or ['without a word'])[-1]}", flush=True)
    return None


def _missed(results: Results) -> list[str]:
    """What is worse than aimed at or than published, said line by line."""
    rows = [row for table in results["tables"] for rows in table["subjects"].values() for row in rows or ()]
    lines = [f"{row.label}: {row.text} {row.unit}, aimed at {row.at_most:g}" for row in rows if _misses(row)]
    lines += broken(results, SLACK)
    print("\nworse than it may be:" if lines else "\nall as claimed", *lines, sep="\n  ")
    return lines


def _has_aim(row: Row) -> bool:
    return row.at_most is not None


def _misses(row: Row) -> bool:
    return row.at_most is not None and row.value > SLACK * row.at_most


def _measure(name: str, *, quick: bool) -> Iterable[Row]:
    measure = importlib.import_module(f"tests.bench.{name}").measure
    rows: Iterable[Row] = measure(quick=quick) if "quick" in inspect.signature(measure).parameters else measure()
    return rows


if __name__ == "__main__":
    sys.exit(main())
