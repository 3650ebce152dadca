"""Runs a program of a corpus in a forked process: as alone as in one of its own, without its start-up."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import random
import sys
import tempfile
import traceback
from multiprocessing.connection import Connection
from pathlib import Path

import numpy
import torch

from memguard.text.units import parse_bytes
from tests.corpus.runner import Outcome, run, virtual_of

SECONDS = 300
"""A program that takes longer is ended."""
_IMPORTED_ONCE = ("torch", "torch.utils.data", "torch._dynamo", "lightning.pytorch", "memguard.integrations.script")


def run_forked(path: Path, *, device: str | None = None, times: float = 1.0) -> Outcome | str:
    """The outcome of one program, or in words why there is none.

    Args:
        path: The program: a file, or a folder with a main.py.
        device: As in `tests.corpus.runner.run`; "cuda" puts the whole program onto the GPU.
        times: Looks cost so many times what they do.
    """
    for name in _IMPORTED_ONCE:
        importlib.import_module(name)
    forked = multiprocessing.get_context("fork")
    ours, theirs = forked.Pipe(duplex=False)
    process = forked.Process(target=_run, args=(path, device, times, theirs), daemon=False)
    process.start()
    theirs.close()
    try:
        answer: Outcome | str = ours.recv() if ours.poll(SECONDS) else f"took more than {SECONDS} s"
    except EOFError:
        answer = "its process died"
    process.kill()
    process.join()
    return answer


def _run(path: Path, device: str | None, times: float, answer: Connection) -> None:
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path.cwd()), os.environ.get("PYTHONPATH", "")])  # its workers'
    seed()
    sys.path.insert(0, os.getcwd())  # the program's folder takes this place
    with tempfile.TemporaryDirectory() as folder:
        try:
            if device == "cuda":
                put_on_the_gpu(virtual_of(path))
            answer.send(run(path, Path(folder), device=device, times=times, owns_process=True))
        except BaseException:
            answer.send(traceback.format_exc())


def seed() -> None:
    """Two runs of a program that draws numbers and names no seed are alike."""
    random.seed(0)
    numpy.random.seed(0)
    torch.manual_seed(0)


def put_on_the_gpu(virtual: str) -> None:
    """Lets all that this process makes from now on be made on the GPU, of which it gets as much as it thinks to have.

    The programs say nothing of devices. Nothing of this is undone: the process ends with its program.

    Args:
        virtual: The device that the program is written for, like "virtual:1GiB".
    """
    generator = torch.Generator
    setattr(torch, "Generator", lambda device="cuda": generator(device))  # noqa: B010 - as DataLoader makes its own
    torch.set_default_device("cuda")
    if virtual.startswith("virtual:"):
        size = parse_bytes(virtual.removeprefix("virtual:").split(",")[0])
        torch.cuda.set_per_process_memory_fraction(min(1.0, size / torch.cuda.get_device_properties(0).total_memory))
