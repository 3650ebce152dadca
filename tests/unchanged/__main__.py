"""Compares programs of the corpus, plain and guarded: ``python -m tests.unchanged [--device DEVICE] [NAME ...]``."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # programs so small only wait for more threads

from tests.corpus.runner import exit_code_of, programs, virtual_of
from tests.unchanged.run import compare


def main(arguments: list[str]) -> int:
    """Prints each difference; the exit code is 1 where there is one."""
    parser = argparse.ArgumentParser(prog="python -m tests.unchanged")
    parser.add_argument("names", nargs="*", help="parts of the names of programs, or paths; all without it")
    parser.add_argument(
        "--device", help="what to guard (the virtual device that each program names; of those that fill it, the CPU)"
    )
    parser.add_argument("--every", type=int, default=1, metavar="N", help="one program in N (1)")
    given = parser.parse_args(arguments)
    paths = [Path(name).resolve() for name in given.names if Path(name).is_file()]
    paths = paths or [p for p in programs() if not given.names or any(name in p.name for name in given.names)]
    paths, differ, began = paths[:: given.every], 0, time.monotonic()
    with tempfile.TemporaryDirectory(prefix="unchanged-") as folder:
        for path in paths:
            script = path / "main.py" if path.is_dir() else path
            text = script.read_text()
            # Some run out of memory on that device, where the plain run has all there is, or expect it and go on.
            on_cpu = exit_code_of(path, None) or "OutOfMemoryError" in text
            device = given.device or ("cpu" if on_cpu else virtual_of(path))
            try:
                found = compare(script, Path(folder) / "run", device=device, forked=True)
            except TimeoutError as error:
                found = [f"not compared: {error}"]
            if "fake_pg" in text:  # its collectives write nothing: such a program trains on what lay in memory before
                found = [line for line in found if not line.startswith("weights: ")]
            differ += bool(found)
            for line in found:
                print(f"{path.parent.name}/{path.name}: {line}", flush=True)
    print(f"{len(paths)} programs, {differ} differ, {time.monotonic() - began:.0f} s")
    return int(differ > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
