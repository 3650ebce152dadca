"""What compiled steps take on the real allocator, one JSON line each; runs under the null GPU.

Dynamo, AOTAutograd and Inductor are PyTorch's own, and so is the code that Inductor writes, up to its kernels: of those
the null GPU, which computes nothing, needs none, and Triton is not installed in its environment.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import torch._dynamo
import torch._inductor.config
import torch._inductor.runtime.triton_heuristics
from torch._inductor import async_compile, codecache, scheduler
from torch.utils import _triton

sys.path.insert(0, str(Path(__file__).resolve().parent))

from compiled_programs import Case, build

STEPS = 3


class _NoKernel:
    def run(self, *_: Any, **__: Any) -> None:
        """The null GPU computes nothing."""


def leave_kernels_out() -> None:
    """Let Inductor write its code without asking for Triton, and load it without compiling kernels."""
    torch._inductor.config.force_disable_caches = True
    torch._inductor.config.compile_threads = 1
    anything: Any = scheduler
    anything.has_triton = lambda *_: True
    triton: Any = _triton
    triton.triton_hash_with_backend = lambda: ""
    compiler: Any = async_compile.AsyncCompile
    compiler.triton = compiler.multi_kernel = lambda *_, **__: _NoKernel()
    compiler.wait = lambda *_, **__: None
    load = codecache.PyCodeCache.load_by_key_path

    def load_without_triton(*args: Any, **kwargs: Any) -> ModuleType:
        stub: Any = ModuleType("triton")
        stub.language = ModuleType("triton.language")
        sys.modules.update({"triton": stub, "triton.language": stub.language})
        try:
            return load(*args, **kwargs)
        finally:
            del sys.modules["triton"], sys.modules["triton.language"]

    codes: Any = codecache.PyCodeCache
    codes.load_by_key_path = load_without_triton


def peaks(case: Case) -> dict[str, Any]:
    """The peaks of some steps."""
    _, _, step = build(case)
    for _ in range(STEPS):
        step()
    stats = torch.cuda.memory_stats()
    return {
        "allocated": stats["allocated_bytes.all.peak"],
        "reserved": stats["reserved_bytes.all.peak"],
        "graphs": torch._dynamo.utils.counters["stats"]["unique_graphs"],
    }


def main() -> None:
    """Read cases from stdin, one JSON object a line; answer one line each."""
    leave_kernels_out()
    for line in sys.stdin.read().splitlines():
        child = os.fork()  # each case in a process of its own; CUDA is not yet initialised here
        if child == 0:
            given = json.loads(line)
            try:
                answer = peaks(Case(**given))
            except Exception as error:  # said, not hidden
                answer = {"error": f"{type(error).__name__}: {str(error).splitlines()[0]}"}
            print(json.dumps({"case": given, **answer}), flush=True)
            os._exit(0)
        os.waitpid(child, 0)


if __name__ == "__main__":
    main()
