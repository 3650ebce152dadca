"""What 1, 8, 512 and 10,000 ranks leave on disk, and what reading them takes: ``python -m tests.bench.scale --save``.

Every rank has 2000 training batches, of 10,000 ranks 200 each. The last stage has a fault (`planted_faults`). Seconds
are processor time of a process of its own, its imports among them. Tab and HTML file are measured up to 512 ranks.
docs/scale.md takes its figures from here; the page with the result is benchmarks/results/scale.md.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.bench.many_ranks import AFTER, BEFORE, REPORT
from tests.report.planted_faults import Layout, make_run

PAGE = Path(__file__).parents[2] / "benchmarks" / "results" / "scale.md"
RUNS = {1: 2000, 8: 2000, 512: 2000, 10_000: 200}
"""Batches of each rank, by the number of ranks."""
MOST_SHOWN = 512
"""Of more ranks the report alone is measured."""
TAB = """
from tests.tensorboard_plugin.serving import Server
server = Server(sys.argv[1])
while (listed := server.json("/runs"))["pending"]:
    pass
run = listed["runs"][0]["name"]
server.json("/worst", run=run), server.json("/ranks", run=run, px=1200), server.json("/heat", run=run)
"""
HTML = """
from memguard.cli import main
main(["report", sys.argv[1], "--html", sys.argv[1] + "/page.html"])
"""


def table(runs: dict[int, int]) -> list[tuple[str, ...]]:
    """A row for each number of ranks."""
    rows = [("ranks", "batches", "files", "bytes", "report", "", "Memory tab", "", "HTML report", "", "its bytes")]
    for ranks, batches in runs.items():
        with tempfile.TemporaryDirectory() as folder:
            fault = "last stage" if ranks >= 64 else None
            make_run(Path(folder), fault, layout=_layout(ranks), batches=batches)
            files = [path for path in Path(folder).rglob("*") if path.is_file()]
            size = sum(path.stat().st_size for path in files)
            shown = (TAB, HTML) if ranks <= MOST_SHOWN else ()
            costs = [text for code in (REPORT, *shown) for text in _cost(code, folder)]
            costs += [f"{(Path(folder) / 'page.html').stat().st_size:,}"] if shown else ["-"] * 5
            rows.append((f"{ranks:,}", f"{batches:,}", f"{len(files):,}", f"{size:,}", *costs))
            print(" | ".join(rows[-1]), flush=True)
    return rows


def _layout(ranks: int) -> Layout:
    return Layout(ranks=ranks) if ranks % 16 == 0 else Layout(ranks=ranks, tp=1, pp=1, ep=1)


def _cost(code: str, folder: str) -> tuple[str, str]:
    command = [sys.executable, "-W", "ignore", "-c", BEFORE + code + AFTER, folder]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    seconds, mebibytes = map(float, done.stderr.strip().splitlines()[-1].split())
    return f"{seconds:.1f} s", f"{mebibytes:.0f} MiB"


def page(rows: list[tuple[str, ...]]) -> str:
    """The result as a page."""
    lines = [f"| {' | '.join(row)} |" for row in rows]
    lines.insert(1, "|" + "---|" * len(rows[0]))
    told = (__doc__ or "").partition("\n\n")[2].strip()
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    return "\n".join(["# Reading many ranks", "", told, "", f"{machine}, {datetime.date.today()}.", "", *lines]) + "\n"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--save", action="store_true", help=f"write {PAGE.name}")
    parser.add_argument("--most", type=int, default=10_000, metavar="RANKS", help="leave larger runs out")
    given = parser.parse_args()
    text = page(table({ranks: batches for ranks, batches in RUNS.items() if ranks <= given.most}))
    print(text)
    if given.save:
        PAGE.write_text(text, encoding="utf-8")
