"""Prints how well memguard does on the corpus: ``python -m tests.corpus [--device DEVICE] [NAME ...]``."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.corpus.runner import marks_of, programs, run


def main(arguments: list[str]) -> int:
    """Runs the programs whose names contain one of the given texts, all of them without one, on one device or both."""
    parser = argparse.ArgumentParser(prog="python -m tests.corpus")
    parser.add_argument("names", nargs="*", help="parts of programs' names")
    parser.add_argument("--device", choices=["virtual", "cpu", "auto"], help="virtual and cpu without it")
    options = parser.parse_args(arguments)
    paths = [p for p in programs() if not options.names or any(name in p.name for name in options.names)]
    for device in [options.device] if options.device else ["virtual", "cpu"]:
        _table(paths, device)
    return 0


def _table(paths: list[Path], device: str) -> None:
    counts = {"faults": 0, "found": 0, "right line": 0, "right holder": 0, "healthy": 0, "false alarms": 0}
    delays: dict[str, list[tuple[int, str]]] = {}
    began = time.monotonic()
    for path in paths:
        with tempfile.TemporaryDirectory() as folder:
            outcome = run(path, Path(folder), device=None if device == "virtual" else device)
        for mark in outcome.marks:
            counts["faults"] += 1
            counts["found"] += outcome.found(mark)
            counts["right line"] += outcome.right_line(mark)
            counts["right holder"] += outcome.right_holder(mark)
            if (delay := outcome.delay(mark)) is not None:
                delays.setdefault(mark.code, []).append((delay, path.name))
            if not (outcome.right_line(mark) and outcome.right_holder(mark)):
                told = [(f.code, f.line, f.holder) for f in outcome.findings]
                print(f"{path.name}: wanted {mark.code} line {mark.line} {mark.holder}, told {told}")
        if outcome.exit_code:
            print(f"{path.name}: exit code {outcome.exit_code}\n{outcome.output[-2000:]}")
        counts["healthy"] += not marks_of(path)
        counts["false alarms"] += len(outcome.alarms)
        for finding in outcome.alarms:
            told_at = f"{finding.code} {finding.severity.value} line {finding.line}"
            print(f"{path.name}: false alarm {told_at}: {finding.message}")
    for code, found in sorted(delays.items()):
        found.sort()
        late = ", ".join(f"{name} {delay}" for delay, name in found[-3:])
        print(f"{device}: {code} told after {found[len(found) // 2][0]} batches (median), the latest: {late}")
    print(f"{device}: {', '.join(f'{name} {n}' for name, n in counts.items())}, {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
