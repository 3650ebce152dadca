"""Prints how well memguard does on the corpus: ``python -m tests.corpus [--device DEVICE] [NAME ...]``.

Programs of another corpus are given as paths: ``python -m tests.corpus blind/faulty/*.py``. Each runs in a process of
its own, so that what one leaves behind is no matter of the next.
"""

from __future__ import annotations

import argparse
import fnmatch
import functools
import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # programs so small only wait for more threads

from tests.corpus import golden
from tests.corpus.forked import run_forked
from tests.corpus.runner import Outcome, marks_of, programs


def main(arguments: list[str]) -> int:
    """Runs the programs given as paths, or those of the corpus whose names contain one of the texts, or all of them.

    Returns:
        1 where `--golden` finds a difference, else 0.
    """
    parser = argparse.ArgumentParser(prog="python -m tests.corpus")
    parser.add_argument("names", nargs="*", help="paths of programs, or parts of the names of the corpus's own")
    parser.add_argument("--device", choices=["virtual", "cpu", "auto", "cuda"], help="virtual and cpu without it")
    parser.add_argument("-j", "--jobs", type=int, default=1, metavar="N", help="so many programs side by side (1)")
    parser.add_argument("--dear", type=float, default=1, metavar="N", help="looks cost N times what they do (1)")
    parser.add_argument("--only", metavar="GLOB", help="of these, the ones whose folder/name fits, like 'retold/mg1*'")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="of these, each N-th")
    parser.add_argument("--golden", action="store_true", help=f"print what differs from {golden.FILE.name}")
    parser.add_argument("--write-golden", action="store_true", help=f"write what is told to {golden.FILE.name}")
    options = parser.parse_args(arguments)
    given = [Path(name).resolve() for name in options.names if Path(name).exists()]
    paths = given or [p for p in programs() if not options.names or any(name in p.name for name in options.names)]
    paths = [p for p in paths if fnmatch.fnmatch(golden.name_of(p), options.only or "*")][:: options.every]
    told: dict[tuple[str, str], tuple[golden.Told, ...]] = {}
    for device in [options.device] if options.device else ["virtual", "cpu"]:
        for path, outcome in _table(paths, device, options.jobs, options.dear):
            told[device, golden.name_of(path)] = golden.told_of(path, outcome)
    before = golden.read() if golden.FILE.exists() else {}
    if options.write_golden:
        there = {golden.name_of(path) for path in programs()}
        golden.write({key: each for key, each in {**before, **told}.items() if key[1] in there})
    return _print_changes(golden.changes(before, told)) if options.golden else 0


def _print_changes(changes: list[golden.Change]) -> int:
    for change in changes:
        print(f"{change.kind:8} {change.program}: {change.text}")
    counts = Counter(change.kind for change in changes)
    said = ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items()))
    print(f"against {golden.FILE.name}: {said or 'equal'}")
    return 1 if changes else 0


def _outcomes(paths: list[Path], device: str, jobs: int, times: float) -> Iterator[Outcome | str]:
    """Of each program, in their order."""
    run_one = functools.partial(run_forked, device=None if device == "virtual" else device, times=times)
    if jobs == 1:
        yield from map(run_one, paths)
        return
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("fork")) as pool:
        yield from pool.map(run_one, paths)


def _table(paths: list[Path], device: str, jobs: int, times: float) -> Iterator[tuple[Path, Outcome | str]]:
    """Prints what is not as marked and, at the end, how much is; hands on each outcome."""
    counts = {"faults": 0, "found": 0, "right line": 0, "right holder": 0, "healthy": 0, "false alarms": 0}
    delays: dict[str, list[tuple[int, str]]] = {}
    began = time.monotonic()
    for path, outcome in zip(paths, _outcomes(paths, device, jobs, times), strict=True):
        name = golden.name_of(path)
        yield path, outcome
        if isinstance(outcome, str):
            print(f"{name}: no outcome: {outcome}", flush=True)
            continue
        for mark in outcome.marks:
            counts["faults"] += 1
            counts["found"] += outcome.found(mark)
            counts["right line"] += outcome.right_line(mark)
            counts["right holder"] += outcome.right_holder(mark)
            if (delay := outcome.delay(mark)) is not None:
                delays.setdefault(mark.code, []).append((delay, path.name))
        counts["healthy"] += not marks_of(path)
        counts["false alarms"] += len(outcome.alarms)
        for line in _said(outcome):
            print(f"{name}: {line}", flush=True)
    for code, found in sorted(delays.items()):
        found.sort()
        late = ", ".join(f"{name} {delay}" for delay, name in found[-3:])
        print(f"{device}: {code} told after {found[len(found) // 2][0]} batches (median), the latest: {late}")
    print(f"{device}: {', '.join(f'{name} {n}' for name, n in counts.items())}, {time.monotonic() - began:.0f} s")


def _said(outcome: Outcome) -> list[str]:
    """What is not as marked, a line each."""
    lines = []
    for mark in outcome.marks:
        wanted = f"{mark.code} line {mark.line} {mark.holder}"
        told = [(f.code, f.severity.value, f.line, f.holder) for f in outcome.findings]
        if not outcome.found(mark):
            lines.append(f"MISSED {wanted}, told {told}")
        elif not outcome.right_line(mark):
            lines.append(f"LINE {wanted}, told {told}")
        elif not outcome.right_holder(mark):
            lines.append(f"HOLDER {wanted}, told {told}")
        if (delay := outcome.delay(mark) or 0) > (bound := outcome.bounds.get(mark.code, 0)):
            lines.append(f"LATE {wanted}: told after {delay} batches, not {bound}")
    for finding in outcome.alarms:
        lines.append(f"ALARM {finding.code} {finding.severity.value} line {finding.line}: {finding.message}")
    if outcome.exit_code:
        lines.append(f"exit code {outcome.exit_code}\n{outcome.output[-2000:]}")
    return lines


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
