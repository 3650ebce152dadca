"""Runs a program plain and guarded in folders that look alike, in processes of their own or, faster, in forked ones."""

from __future__ import annotations

import importlib
import os
import random
import runpy
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

from tests.unchanged.outcome import Outcome, differences
from tests.unchanged.weights import watch_weights, write_weights

ROOT = Path(__file__).parents[2]
SECONDS = 240
"""A program that takes longer is ended."""
_EMPTY_MODE = "an empty dispatch mode"
"""In place of a device: a plain run under a mode that hands each operator on."""
_IMPORTED_ONCE = ("torch", "torch.utils.data", "torch._dynamo")


def compare(
    program: Path, folder: Path, *, device: str, arguments: Sequence[str] = (), forked: bool = False
) -> list[str]:
    """In what a guarded run of a program differs from plain ones, in words.

    Args:
        program: A file.
        folder: Where all runs take place, one after the other under the same path.
        device: What ``memguard run`` guards.
        arguments: The program's own.
        forked: Whether in forks of this process, which has torch loaded: quicker, and blind to what only the start and
            the end of a process of one's own show.
    """
    run = _run_forked if forked else _run_alone
    plain = run(program, arguments, folder, None)
    guarded = run(program, arguments, folder, device)
    if not (found := differences(plain, guarded)):
        return []
    if (
        forked
        and device.startswith("virtual")
        and not differences(run(program, arguments, folder, _EMPTY_MODE), guarded)
    ):
        return []  # a virtual device is a dispatch mode: under any such mode PyTorch rounds some sums otherwise
    again = run(program, arguments, folder, None)  # is it the program itself that is never the same?
    return differences(plain, guarded, again) if again != plain else found


def _run_alone(program: Path, arguments: Sequence[str], folder: Path, device: str | None) -> Outcome:
    _make_room(folder)
    guard = [] if device is None else ["-m", "memguard", "run", "--device", device]
    with open(folder / "stdout", "wb") as stdout, open(folder / "stderr", "wb") as stderr:
        done = subprocess.run(
            [sys.executable, *guard, str(program), *arguments],
            cwd=folder / "work",
            env=_environment(folder),
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            timeout=SECONDS,
            check=False,
        )
    return Outcome.of_folder(done.returncode, folder)


def _run_forked(program: Path, arguments: Sequence[str], folder: Path, device: str | None) -> Outcome:
    for name in _IMPORTED_ONCE:
        importlib.import_module(name)
    _make_room(folder)
    if not (child := os.fork()):
        code = 70
        try:
            code = _be_the_program(program, arguments, folder, device)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code & 255)
    return Outcome.of_folder(os.waitstatus_to_exitcode(_wait(child)), folder)


def _wait(child: int) -> int:
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return status
        time.sleep(0.02)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    raise TimeoutError(f"it takes more than {SECONDS} s")


class _EmptyMode(TorchDispatchMode):
    """Hands each operator on."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def _be_the_program(program: Path, arguments: Sequence[str], folder: Path, device: str | None) -> int:
    for name, number in (("stdout", 1), ("stderr", 2)):
        os.dup2(os.open(folder / name, os.O_WRONLY | os.O_CREAT), number)
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - the process ends with it
    sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - the process ends with it
    os.environ.clear()
    os.environ.update(_environment(folder))
    os.chdir(folder / "work")
    random.seed(0)
    watch_weights(str(folder / "weights"))
    try:
        if device == _EMPTY_MODE:
            mode = _EmptyMode()
            mode.__enter__()
        elif device is not None:
            from memguard.cli import main

            return main(["run", "--device", device, str(program), *arguments])
        sys.argv = [str(program), *arguments]
        sys.path.insert(0, str(program.parent))
        runpy.run_path(str(program), run_name="__main__")
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        write_weights(str(folder / "weights"))
    return 0


def _make_room(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    for name in ("work", "weights", "recordings", "temporary"):
        (folder / name).mkdir(parents=True)


def _environment(folder: Path) -> dict[str, str]:
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("MEMGUARD")},
        "MEMGUARD_LOGDIR": str(folder / "recordings"),
        "OMP_NUM_THREADS": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
        "PYTHONPATH": os.pathsep.join([str(ROOT / "tests" / "unchanged" / "start"), str(ROOT)]),
        "PYTHONWARNINGS": "ignore",
        "TMPDIR": str(folder / "temporary"),
        "UNCHANGED_WEIGHTS": str(folder / "weights"),
    }
