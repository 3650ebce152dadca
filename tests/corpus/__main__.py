"""Prints how well memguard does on the corpus: ``python -m tests.corpus [--device DEVICE] [NAME ...]``.

Programs of another corpus are given as paths: ``python -m tests.corpus blind/faulty/*.py``. Each runs in a process of
its own, so that what one leaves behind is no matter of the next.
"""

from __future__ import annotations

import argparse
import fnmatch
import functools
import math
import multiprocessing
import os
import sys
import time
import zlib
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # programs so small only wait for more threads

from tests.corpus import golden
from tests.corpus.forked import run_forked
from tests.corpus.peers import HEADER, PEERS, check, compare
from tests.corpus.runner import Outcome, known_misses, programs
from tests.corpus.score import Score


def main(arguments: list[str]) -> int:
    """Runs the programs given as paths, or those of the corpus whose names contain one of the texts, or all of them.

    Returns:
        1 where `--golden` finds more than minor differences in two runs of a program, where a known miss is one no more, and where a
        run is called nothing to worry about that is not; else 0.
    """
    parser = argparse.ArgumentParser(prog="python -m tests.corpus")
    parser.add_argument("names", nargs="*", help="paths of programs, or parts of the names of the corpus's own")
    parser.add_argument("--device", choices=["virtual", "cpu", "auto", "cuda"], help="virtual and cpu without it")
    parser.add_argument("-j", "--jobs", type=int, default=1, metavar="N", help="so many programs side by side (1)")
    parser.add_argument("--dear", type=float, default=1, metavar="N", help="looks cost N times what they do (1)")
    parser.add_argument("--only", metavar="GLOB", help="of these, the ones whose folder/name fits, like 'retold/mg1*'")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="of these, each N-th")
    parser.add_argument("--minutes", type=float, default=math.inf, metavar="N", help="begin no program after so many")
    parser.add_argument("--missing", action="store_true", help=f"of these, what {golden.FILE.name} has not")
    parser.add_argument("--golden", action="store_true", help=f"print what differs from {golden.FILE.name}")
    parser.add_argument("--write-golden", action="store_true", help=f"write what is told to {golden.FILE.name}")
    parser.add_argument("--peer", action="append", choices=sorted(PEERS), help="run them under another tool instead")
    options = parser.parse_args(arguments)
    devices = [options.device] if options.device else ["virtual", "cpu"]
    compares = options.golden or options.write_golden
    if compares and (options.dear != 1 or not {"virtual", "cpu"}.issuperset(devices)):
        parser.error(f"{golden.FILE.name} is of the virtual device and the CPU, without --dear")
    given = [Path(name).resolve() for name in options.names if Path(name).exists()]
    own = [*programs(), *known_misses()]
    paths = given or [p for p in own if not options.names or any(name in p.name for name in options.names)]
    paths = [p for p in paths if fnmatch.fnmatch(golden.name_of(p), options.only or "*")][:: options.every]
    before = golden.read() if golden.FILE.exists() else {}
    there = {golden.name_of(path) for path in own}
    told: dict[tuple[str, str], tuple[golden.Told, ...]] = {}
    if math.isfinite(options.minutes):
        paths.sort(
            key=lambda path: zlib.crc32(golden.name_of(path).encode())
        )  # of all kinds some, however far it comes
    if options.peer:
        if (missing := check(options.peer)) is not None:
            parser.error(missing)
        print(HEADER, *compare(paths, options.peer, options.jobs, options.minutes), sep="\n")
        return 0
    fails, began = False, time.monotonic()
    for device in devices:
        score = Score(device)
        some = [p for p in paths if not options.missing or (device, golden.name_of(p)) not in before]
        for path, outcome in zip(some, _outcomes(some, device, options.jobs, options.dear), strict=True):
            key, each = (device, golden.name_of(path)), golden.told_of(path, outcome)
            changes = golden.changes(before, {key: each}) if options.golden and key in before else []
            if any(not change.is_minor for change in changes):
                outcome = run_forked(
                    path, device=None if device == "virtual" else device
                )  # a busy machine, or a change
                each = golden.told_of(path, outcome)
            told[key] = each
            for line in score.add(path, outcome):
                print(f"{golden.name_of(path)}: {line}", flush=True)
            if time.monotonic() - began > 60 * options.minutes:
                print(f"{device}: no time for more than {len(told)} programs", flush=True)
                break
            if options.write_golden:  # as it goes: a run that is ended keeps what it has
                golden.write({key: each for key, each in {**before, **told}.items() if key[1] in there})
        print(score, flush=True)
        fails = fails or score.counts["found again"] > 0 or score.counts["silences"] > 0
    if options.golden:
        known = {key: each for key, each in told.items() if key in before}
        fails = _print_changes(golden.changes(before, known), len(told) - len(known)) or fails
    return int(fails)


def _print_changes(changes: list[golden.Change], new: int) -> bool:
    for change in changes:
        print(f"{change.kind:8} {change.program}: {change.text}{' (minor)' if change.is_minor else ''}")
    counts = Counter(change.kind for change in changes)
    said = ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items()))
    print(f"against {golden.FILE.name}: {said or 'equal'}{f', {new} programs are not in it' if new else ''}")
    return any(not change.is_minor for change in changes)


def _outcomes(paths: list[Path], device: str, jobs: int, times: float) -> Iterator[Outcome | str]:
    """Of each program, in their order."""
    run_one = functools.partial(run_forked, device=None if device == "virtual" else device, times=times)
    if jobs == 1:
        yield from map(run_one, paths)
        return
    pool = ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("fork"))
    try:
        yield from pool.map(run_one, paths)
    finally:
        pool.shutdown(cancel_futures=True)  # of a run that ends early


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
