"""Programs that run out of memory: ``python -m tests.postmortem.programs LOGDIR NAME...``.

With several names each is forked from this process, which has loaded torch once, and ends as any program does; its
output and exit code are left in files beside its recording.
"""

from __future__ import annotations

import importlib
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


def raised_from(logdir: str) -> None:
    """The program wraps the error in one of its own."""
    with memguard.watch(device=DEVICE, logdir=logdir, quiet=True):
        try:
            big()
        except torch.OutOfMemoryError as error:
            raise ValueError("the step failed") from error


def grouped(logdir: str) -> None:
    """The error is one of several in a group."""
    with memguard.watch(device=DEVICE, logdir=logdir, quiet=True):
        try:
            big()
        except torch.OutOfMemoryError as error:
            raise ExceptionGroup("two jobs failed", [KeyError("a"), error]) from None  # noqa: F821


def workers(logdir: str) -> None:
    """Batches come from worker processes."""
    loader = torch.utils.data.DataLoader(torch.zeros(64, 8), batch_size=8, num_workers=2)
    model = nn.Linear(8, 8)
    with memguard.watch(model, device=DEVICE, logdir=logdir, quiet=True) as guard:
        for number, batch in enumerate(guard.batches(loader)):
            model(batch).sum().backward()
            if number == 3:
                big()


ALL = (watched, plain, wrapped, raised, thread, rank, killed, raised_from, grouped, workers)
PROGRAMS = {program.__name__: program for program in ALL}


def main() -> None:
    torch.set_num_threads(1)
    logdir, *names = sys.argv[1:]
    if len(names) > 1:
        name = _forked(logdir, names)
        if name is None:
            return
        names, logdir = [name], os.path.join(logdir, name)
    PROGRAMS[names[0]](logdir)


def _forked(logdir: str, names: list[str]) -> str | None:
    """In each child the program that it is; in the parent None, when all have ended."""
    for module in ("torch._dynamo", "memguard.integrations.torch"):  # what each of them would load
        importlib.import_module(module)
    for name in names:
        folder = os.path.join(logdir, name)
        os.makedirs(folder)
        child = os.fork()
        if not child:
            for descriptor, kind in ((1, "stdout"), (2, "stderr")):
                os.dup2(os.open(os.path.join(folder, kind), os.O_WRONLY | os.O_CREAT), descriptor)
            return name
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        with open(os.path.join(folder, "code"), "w") as file:
            file.write(str(code))
    return None


if __name__ == "__main__":
    main()
