"""Runs a command on the null GPU: ``python -m tests.nullgpu.run --total 24GiB -- python train.py``."""

from __future__ import annotations

import argparse
import os
import sys

from tests.nullgpu import environment


def parser() -> argparse.ArgumentParser:
    """The options; each is also an environment variable, NULLGPU_TOTAL and so on. Sizes take K, M, G, T."""
    options = argparse.ArgumentParser(prog="python -m tests.nullgpu.run", description=__doc__)
    options.add_argument("--total", metavar="SIZE", help="memory of each GPU (80GiB)")
    options.add_argument("--cc", metavar="X.Y", help="compute capability: decides workspaces and kernels (9.0)")
    options.add_argument("--devices", metavar="N", help="number of GPUs, 0 to 8 (1)")
    options.add_argument("--context", metavar="SIZE", help="memory of this process outside PyTorch (0)")
    options.add_argument("--other", metavar="SIZE", help="memory of another process, number 4242 (0)")
    options.add_argument("--cudnn-ws", metavar="SIZE", help="workspace that every cuDNN plan asks for (0)")
    options.add_argument(
        "--pending", action="store_const", const="1", help="events stay unfinished until something synchronises"
    )
    options.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND", help="what to run, after --")
    return options


def main() -> int:
    """Replaces this process by the command; returns only where it cannot, with status 2."""
    options = parser()
    chosen = vars(options.parse_args())
    command = chosen.pop("command")
    command = command[1:] if command[:1] == ["--"] else command
    if not command:
        options.error("no command; write one after --")
    place = environment.folder()
    if not environment.stamp(place).exists():
        options.error(f"no environment in {place}; make it with: python -m tests.nullgpu.setup")
    variables = {f"NULLGPU_{name.upper()}": value for name, value in chosen.items() if value is not None}
    variables["VIRTUAL_ENV"] = str(place)
    variables["PATH"] = _first(str(place / "bin"), os.environ.get("PATH"))
    # pynvml opens its library by name; torch finds the others by itself.
    variables["LD_LIBRARY_PATH"] = _first(str(environment.libraries(place)), os.environ.get("LD_LIBRARY_PATH"))
    variables["PYTHONPATH"] = _first(str(environment.CHECKOUT), os.environ.get("PYTHONPATH"))
    os.environ.update(variables)
    sys.stdout.flush()
    try:
        os.execvp(command[0], command)
    except OSError as error:
        options.error(f"cannot run {command[0]}: {error.strerror}")


def _first(entry: str, path: str | None) -> str:
    return f"{entry}{os.pathsep}{path}" if path else entry


if __name__ == "__main__":
    sys.exit(main())
