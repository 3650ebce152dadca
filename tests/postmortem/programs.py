"""Programs that run out of memory: ``python -m tests.postmortem.programs NAME LOGDIR``."""

from __future__ import annotations

import os
import signal
import sys
import threading

import torch
from torch import nn

import memguard

DEVICE = "virtual:16MiB"


def big() -> torch.Tensor:
    return torch.zeros(64 << 20, dtype=torch.uint8)


def watched(logdir: str) -> None:
    """The error leaves a `watch` block."""
    with memguard.watch(device=DEVICE, logdir=logdir, quiet=True):
        big()


def plain(logdir: str) -> None:
    """The same without memguard: the error is raised by hand where the virtual GPU would."""
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 64.00 MiB.")


def wrapped(logdir: str) -> None:
    """The error ends a program whose model is wrapped."""
    model = memguard.wrap(nn.Linear(8, 8), device=DEVICE, logdir=logdir, quiet=True)
    model(torch.zeros(1 << 20, 8))


def raised(logdir: str) -> None:
    """As `plain`, with a wrapped model: nobody listens to an allocator, only the hook of the interpreter hears it."""
    memguard.wrap(nn.Linear(8, 8), device="cpu", logdir=logdir, quiet=True)
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 64.00 MiB.")


def thread(logdir: str) -> None:
    """The error ends a thread; the program goes on."""
    memguard.wrap(nn.Linear(8, 8), device="cpu", logdir=logdir, quiet=True)

    def fail() -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 64.00 MiB.")

    worker = threading.Thread(target=fail)
    worker.start()
    worker.join()
    print("done")


def rank(logdir: str) -> None:
    """One rank of two runs out of memory in its own part of a DDP program."""
    torch.distributed.init_process_group("gloo")
    model = nn.parallel.DistributedDataParallel(nn.Linear(8, 8))
    with memguard.watch(model, device=DEVICE, logdir=logdir, quiet=True):
        model(torch.zeros(4, 8)).sum().backward()
        if os.environ["RANK"] == "1":
            big()
        model(torch.zeros(4, 8)).sum().backward()
    torch.distributed.destroy_process_group()


def killed(logdir: str) -> None:
    """The kernel ends the program without a word, as it does when RAM runs out."""
    model = nn.Linear(8, 8)
    with memguard.watch(model, device="cpu", logdir=logdir) as guard:
        for number, batch in enumerate(guard.batches([torch.zeros(4, 8)] * 10)):
            model(batch).sum().backward()
            if number == 5:
                os.kill(os.getpid(), signal.SIGKILL)


PROGRAMS = {program.__name__: program for program in (watched, plain, wrapped, raised, thread, rank, killed)}


def main() -> None:
    torch.set_num_threads(1)
    PROGRAMS[sys.argv[1]](sys.argv[2])


if __name__ == "__main__":
    main()
