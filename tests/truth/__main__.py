"""Prints what findings say of their holders beside a count: ``python -m tests.truth [-j N] [NAME ...]``."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # programs so small only wait for more threads

from tests.corpus.runner import faulty
from tests.truth.kept_bytes import rows_of, table


def main(arguments: list[str]) -> None:
    """The table of the corpus's faulty programs whose names contain one of the texts, or of programs given as paths."""
    parser = argparse.ArgumentParser(prog="python -m tests.truth")
    parser.add_argument("names", nargs="*", help="paths of programs, or parts of the names of the corpus's own")
    parser.add_argument("-j", "--jobs", type=int, default=1, metavar="N", help="so many programs side by side (1)")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="of these, each N-th")
    options = parser.parse_args(arguments)
    given = [Path(name).resolve() for name in options.names if Path(name).exists()]
    own = [path for path in faulty() if path.is_file()]
    paths = given or [path for path in own if not options.names or any(name in path.name for name in options.names)]
    with ProcessPoolExecutor(options.jobs, mp_context=multiprocessing.get_context("fork")) as pool:
        rows = []
        for found in pool.map(rows_of, paths[:: options.every]):
            rows += found
            for row in found:
                print(row, flush=True)
    print(table(rows).splitlines()[-1])


if __name__ == "__main__":
    main(sys.argv[1:])
