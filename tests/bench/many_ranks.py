"""How long a run of 512 ranks with 2000 batches each takes to read, and what that weighs: the report and the tab."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.bench.rows import Row
from tests.report.many_ranks import make_many

RANKS, BATCHES = 512, 2000
REPORT = """
from memguard.cli import main
main(["report", sys.argv[1]])
"""
TAB = """
import json
from tests.tensorboard_plugin.serving import Server
server = Server(sys.argv[1])
while (listed := server.json("/runs"))["pending"]:
    pass
run = listed["runs"][0]["name"]
assert server.json("/worst", run=run)["worst"]["rank"] == 137
assert len(server.json("/ranks", run=run, px=1200)["batch"]) > 100
"""
BEFORE = "import resource, sys, time\n"
AFTER = """
used = resource.getrusage(resource.RUSAGE_SELF)
print(used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, file=sys.stderr)
"""


def measure() -> list[Row]:
    """Processor seconds and memory of both, each in a process of its own, the imports among them."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        make_many(Path(folder), ranks=RANKS, batches=BATCHES)
        for name, code in (("memguard report", REPORT), ("Memory tab, all routes of the ranks", TAB)):
            command = [sys.executable, "-c", BEFORE + code + AFTER, folder]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            seconds, mebibytes = map(float, done.stderr.strip().splitlines()[-1].split())
            rows.append(Row(f"{name}, {RANKS} ranks of {BATCHES:,} batches", seconds, "s of CPU", at_most=3))
            rows.append(Row(f"{name}, memory for it", mebibytes, "MiB", at_most=500))
    return rows


if __name__ == "__main__":
    print(json.dumps(measure(), indent=1))
