"""What one rank takes on the real allocator, one JSON line each; runs under the null GPU, whose NCCL sends nothing."""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d, utils
from torch.distributed.pipelining import stage
from torch.utils._python_dispatch import TorchDispatchMode

sys.path.insert(0, str(Path(__file__).resolve().parent))

from ranks_programs import Case, build

STEPS = 3
_LONGEST_SECONDS = 60


class _Remembered(TorchDispatchMode):
    """Numbers that go to the GPU and come back are what they were: the null GPU would return zeros."""

    kept: torch.Tensor | None = None

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if func is torch.ops.aten.copy_.default:
            to, source = args[:2]
            if to.is_cuda and not source.is_cuda:
                self.kept = source.clone()
            elif source.is_cuda and not to.is_cuda and self.kept is not None:
                func(to, self.kept)
        return out


def peaks(case: Case) -> dict[str, Any]:
    """The peaks of some steps of one rank, alone in a group that has all ranks."""
    world = case.processes * case.nodes
    os.environ.update(RANK=str(case.rank), WORLD_SIZE=str(world), LOCAL_RANK="0")
    distributed: Any = distributed_c10d
    distributed._store_based_barrier = lambda *_, **__: None
    utils._verify_param_shape_across_processes = lambda *_, **__: True
    torch.nn.parallel.distributed._verify_param_shape_across_processes = lambda *_, **__: True
    rebuild: Any = dist.Reducer._rebuild_buckets

    def rebuild_with_numbers(reducer: Any) -> Any:
        with _Remembered():
            return rebuild(reducer)

    reducers: Any = dist.Reducer
    reducers._rebuild_buckets = rebuild_with_numbers
    stages: Any = stage._PipelineStageBase
    stages._warmup_forward_vote = stages._warmup_backward_result = lambda *_, **__: torch.ones(1, dtype=torch.int32)
    torch.backends.cuda.enable_cudnn_sdp(False)  # the null GPU has no cuDNN attention
    from torch.testing._internal.distributed.fake_pg import FakeStore

    if case.layout.startswith("ddp"):
        # A rank other than the first would wait for the first to name the communicator.
        device = torch.device("cuda", 0)
        dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=world, device_id=device)
    else:
        dist.init_process_group("fake", store=FakeStore(), rank=case.rank, world_size=world)
    _, _, step = build(case)
    for _ in range(STEPS):
        step()
    stats = torch.cuda.memory_stats()
    return {"allocated": stats["allocated_bytes.all.peak"], "reserved": stats["reserved_bytes.all.peak"]}


def main() -> None:
    """Cases come on stdin, one JSON object a line; each in a process of its own."""
    for line in sys.stdin.read().splitlines():
        if os.fork() == 0:
            signal.alarm(_LONGEST_SECONDS)
            given = json.loads(line)
            try:
                answer = peaks(Case(**given))
            except Exception as error:  # said, not hidden
                traceback.print_exc()
                answer = {"error": f"{type(error).__name__}: {str(error).splitlines()[0][:200]}"}
            print(json.dumps({"case": given, **answer}), flush=True)
            os._exit(0)
        os.wait()


if __name__ == "__main__":
    main()
