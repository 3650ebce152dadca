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
import platform
import re
import subprocess
import sys
from pathlib import Path

from tests.bench.rows import Row
from tests.nullgpu import environment

FOLDER = Path(__file__).parent
ON_NULL_GPU = ("backends", "plain_loop", "lightning_loop", "footprint")
SLACK = 1.5
"""An aim counts as missed from so many times its value on: machines differ."""
_VERSIONS = (
    "import importlib.metadata as m; print(*(f'{n} {m.version(n)}' for n in ('torch', 'lightning', 'tensorboard')))"
)


def subjects() -> list[str]:
    """The names of all files here that measure something."""
    has_measure = re.compile(r"^def measure\(", re.MULTILINE)
    return sorted(path.stem for path in FOLDER.glob("*.py") if has_measure.search(path.read_text(encoding="utf-8")))


def main() -> int:
    """Runs what is asked for and prints the table; status 1 if something failed, or (--check) missed its aim."""
    options = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    options.add_argument("names", nargs="*", metavar="NAME", help=f"what to measure: {', '.join(subjects())} (all)")
    options.add_argument("--quick", action="store_true", help="few repeats: rough figures in a fraction of the time")
    options.add_argument("--check", action="store_true", help=f"fail where an aim is missed by more than {SLACK} times")
    options.add_argument("--json", action="store_true", help="for one subject, in this process: its rows as JSON")
    chosen = options.parse_args()
    if unknown := sorted(set(chosen.names) - set(subjects())):
        options.error(f"there is no {', '.join(unknown)}; there are {', '.join(subjects())}")
    if chosen.json:
        print(json.dumps([row for name in chosen.names for row in _measure(name, quick=chosen.quick)]))
        return 0
    print(f"{datetime.date.today()}, Python {platform.python_version()}, {platform.machine()}")
    names = chosen.names or subjects()
    good = _table([sys.executable], names, chosen.quick, chosen.check)
    if environment.stamp(environment.folder()).exists():
        null_gpu = [sys.executable, "-m", "tests.nullgpu.run", "--total", "24GiB", "--", "python"]
        good &= _table(null_gpu, [name for name in names if name in ON_NULL_GPU], chosen.quick, chosen.check)
    else:
        print("\nno null GPU: make null-gpu")
    return 0 if good else 1


def _table(python: list[str], names: list[str], quick: bool, check: bool) -> bool:
    """Prints the rows of some subjects in one environment; whether all went well."""
    versions = subprocess.run([*python, "-c", _VERSIONS], capture_output=True, text=True, check=False).stdout.strip()
    print(f"\n{'on the null GPU' if len(python) > 1 else 'on the CPU'}: {versions}", flush=True)
    good = True
    for name in names:
        command = [*python, "-W", "ignore", "-m", "tests.bench", "--json", name, *(["--quick"] if quick else [])]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=FOLDER.parents[1])
        print(f"\n{name}")
        if done.returncode:
            good = False
            print(f"  failed: {(done.stderr.strip().splitlines() or ['without a word'])[-1]}", flush=True)
            continue
        for row in (Row(*values) for values in json.loads(done.stdout.splitlines()[-1])):
            missed = row.at_most is not None and row.value > SLACK * row.at_most
            good &= not (check and missed)
            aim = f"  (aim: at most {row.at_most:g}{', missed' if missed else ''})" if row.at_most is not None else ""
            print(f"  {row.label:66}{_number(row.value):>12} {row.unit}{aim}", flush=True)
    return good


def _measure(name: str, *, quick: bool) -> list[Row]:
    measure = importlib.import_module(f"tests.bench.{name}").measure
    rows = measure(quick=quick) if "quick" in inspect.signature(measure).parameters else measure()
    return [Row(*row) for row in rows]


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}" if abs(value) < 1 else f"{value:.1f}"


if __name__ == "__main__":
    sys.exit(main())
