"""Prints how well memguard does on the corpus: ``python -m tests.corpus [NAME ...]``."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.corpus.runner import FAULTY, HEALTHY, run


def main(names: list[str]) -> int:
    """Runs the programs whose names contain one of the given texts; all of them without one."""
    counts = {"faults": 0, "found": 0, "right line": 0, "right holder": 0, "healthy": 0, "false alarms": 0}
    for path in (*FAULTY, *HEALTHY):
        if names and not any(name in path.name for name in names):
            continue
        with tempfile.TemporaryDirectory() as folder:
            outcome = run(path, Path(folder))
        for mark in outcome.marks:
            counts["faults"] += 1
            counts["found"] += outcome.found(mark)
            counts["right line"] += outcome.right_line(mark)
            counts["right holder"] += outcome.right_holder(mark)
            if not (outcome.right_line(mark) and outcome.right_holder(mark)):
                told = [(f.code, f.line, f.holder) for f in outcome.findings]
                print(f"{path.name}: wanted {mark.code} line {mark.line} {mark.holder}, told {told}")
        counts["healthy"] += not outcome.marks
        counts["false alarms"] += len(outcome.alarms)
        for finding in outcome.alarms:
            print(f"{path.name}: false alarm {finding.code} {finding.severity.value}: {finding.message}")
    print(", ".join(f"{name} {count}" for name, count in counts.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
