"""A rank of a training that saves each step and resumes: ``resumed_program.py CHECKPOINT LOGDIR [kill]``.

With ``kill`` rank 2 kills itself in step 9 of the first start, as the kernel does when RAM runs out.
"""

import os
import signal
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import memguard

STEPS = 16


def main() -> None:
    checkpoint, logdir = Path(sys.argv[1]), sys.argv[2]
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(torch.nn.Linear(16, 16))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    first = 0
    if checkpoint.exists():
        saved = torch.load(checkpoint)
        model.load_state_dict(saved["model"])
        first = saved["step"] + 1
    dist.barrier()
    guard = memguard.watch(model, optimizer, device="virtual:64MiB", logdir=logdir if logdir != "-" else None)
    with guard:
        for step in range(first, STEPS):
            model(torch.randn(4, 16)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            if rank == 0:
                torch.save({"model": model.state_dict(), "step": step}, checkpoint.with_suffix(".new"))
                checkpoint.with_suffix(".new").rename(checkpoint)
            dist.barrier()
            if sys.argv[3:] == ["kill"] and step == 9 and rank == 2 and not first:
                os.kill(os.getpid(), signal.SIGKILL)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
