"""What the other tests of this folder rely on: the null GPU answers as a GPU does. Skipped on a real one."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

MIB, GIB = 1 << 20, 1 << 30

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available() or torch.cuda.get_device_name() != "Null GPU", reason="not the null GPU"
)

CHILD = """
import os, torch
cuda = torch.cuda
def block(nbytes): return torch.empty(nbytes, dtype=torch.uint8, device="cuda")
"""


def block(nbytes: int) -> torch.Tensor:
    return torch.empty(nbytes, dtype=torch.uint8, device="cuda")


def child(code: str, **variables: str) -> str:
    """What a fresh process prints: settings are read when the device is first used."""
    command = [sys.executable, "-W", "ignore", "-c", CHILD + code]
    done = subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-800:]
    return done.stdout.strip()


def peak_of(step: object) -> int:
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    step()  # type: ignore[operator]
    return torch.cuda.max_memory_allocated() - before


def test_sizes_are_exact() -> None:
    """Allocated, requested and reserved are what the caching allocator makes of two requests."""
    free = torch.cuda.mem_get_info()[0]
    tensors = [block(1000), block(3 * MIB)]
    stats = torch.cuda.memory_stats()
    assert stats["allocated_bytes.all.current"] == 1024 + 3 * MIB
    assert stats["requested_bytes.all.current"] == 1000 + 3 * MIB
    assert stats["reserved_bytes.small_pool.current"] == 2 * MIB
    assert stats["reserved_bytes.large_pool.current"] == 20 * MIB
    assert free - torch.cuda.mem_get_info()[0] == 22 * MIB
    tensors.clear()
    torch.cuda.empty_cache()
    assert torch.cuda.mem_get_info()[0] == free


def test_out_of_memory() -> None:
    """A request above the total raises with PyTorch's text and is counted."""
    total, held = torch.cuda.mem_get_info()[1], block(2 * GIB)
    with pytest.raises(torch.OutOfMemoryError, match=r"GPU 0 has a total capacity of .* this process has .* in use"):
        block(total + GIB)
    assert torch.cuda.memory_allocated() == held.nbytes
    assert torch.cuda.memory_stats()["num_ooms"] == 1


def test_history_has_python_frames() -> None:
    """The allocation history names this file."""
    torch.cuda.memory._record_memory_history(stacks="python", max_entries=100)
    tensor = block(5 * MIB)
    blocks = [b for segment in torch.cuda.memory._snapshot()["segments"] for b in segment["blocks"]]
    frames = next(b["frames"] for b in blocks if b["address"] == tensor.data_ptr())
    assert any(frame["filename"] == __file__ for frame in frames)


def test_configuration_is_obeyed() -> None:
    """PYTORCH_CUDA_ALLOC_CONF has its usual meaning."""
    code = "x = [block(n << 20) for n in (3, 30, 300)]; print({s['is_expandable'] for s in cuda.memory_snapshot()})"
    assert child(code, PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True") == "{True}"
    assert child(code) == "{False}"


def test_pending_events_hold_memory() -> None:
    """With --pending, a block used by another stream is free only after a synchronisation."""
    code = """
x = block(64 << 20); x.record_stream(cuda.Stream()); del x
y = block(64 << 20); cuda.synchronize(); z = block(64 << 20)
print(cuda.memory_reserved() >> 20)
"""
    assert child(code, NULLGPU_PENDING="1") == "128"
    assert child(code, NULLGPU_PENDING="0") == "128"
    assert child(code.replace("cuda.synchronize()", "pass"), NULLGPU_PENDING="1") == "192"


def test_reading_back_gives_zeros() -> None:
    """Nothing is computed: values read from the device are zero."""
    ones = torch.ones(4, device="cuda")
    assert (ones.sum().item(), ones.cpu().tolist(), ones.nonzero().numel()) == (0.0, [0.0] * 4, 0)


@pytest.mark.parametrize("fused", [False, True])
def test_a_training_step_runs(fused: bool) -> None:
    """Convolution, batch norm, attention, autocast, scaler and optimizer go through a whole step."""
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.GELU(), nn.Flatten(), nn.Linear(8 * 36, 64)).cuda()
    optimizer, scaler = torch.optim.AdamW(net.parameters(), fused=fused), torch.amp.GradScaler("cuda")
    with torch.autocast("cuda", dtype=torch.float16), sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        heads = net(torch.randn(4, 3, 8, 8, device="cuda")).view(4, 2, 4, 8)
        loss = F.scaled_dot_product_attention(heads, heads, heads).float().square().mean()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    scaler.step(optimizer)


def test_checkpointing_lowers_the_peak() -> None:
    """Activation checkpointing saves memory as on a GPU."""
    net = nn.Sequential(
        *[nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256)) for _ in range(4)]
    ).cuda()
    x = torch.randn(4096, 256, device="cuda", requires_grad=True)
    plain = peak_of(lambda: net(x).sum().backward())
    saved = peak_of(
        lambda: torch.utils.checkpoint.checkpoint_sequential(net, 4, x, use_reentrant=False).sum().backward()
    )
    assert saved < 0.7 * plain


def test_workspaces_of_plans() -> None:
    """--cudnn-ws is the workspace of every cuDNN plan."""
    code = (
        "torch.nn.Conv2d(3, 8, 3).cuda()(torch.zeros(2, 3, 32, 32, device='cuda')); print(cuda.max_memory_allocated())"
    )
    assert int(child(code, NULLGPU_CUDNN_WS="64MiB")) - int(child(code)) >= 60 * MIB


def test_nvml_sees_everybody() -> None:
    """NVML counts this process, its context and the other process."""
    code = """
import pynvml
pynvml.nvmlInit(); handle = pynvml.nvmlDeviceGetHandleByIndex(0); x = block(100 << 20)
used = {p.pid: p.usedGpuMemory >> 20 for p in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)}
print(pynvml.nvmlDeviceGetMemoryInfo(handle).used >> 20, used[os.getpid()], used[4242], cuda.device_memory_used() >> 20)
"""
    assert child(code, NULLGPU_CONTEXT="500M", NULLGPU_OTHER="1G") == "1624 600 1024 1624"


def test_devices() -> None:
    """--devices and CUDA_VISIBLE_DEVICES choose; without a device CUDA is not available."""
    assert child("print(cuda.is_available(), cuda.device_count())", NULLGPU_DEVICES="0") == "False 0"
    code = "x = block(MIB := 1 << 20).to('cuda:1'); print(cuda.device_count(), cuda.memory_allocated(1))"
    assert child(code, NULLGPU_DEVICES="4", CUDA_VISIBLE_DEVICES="1,3") == f"2 {MIB}"


def test_graphs_and_pools() -> None:
    """CUDA graphs and MemPool use private pools."""
    graph, x = torch.cuda.CUDAGraph(), torch.zeros(MIB, device="cuda")
    with torch.cuda.graph(graph):
        y = x * 2
    with torch.cuda.use_mem_pool(torch.cuda.MemPool()):
        z = torch.zeros(MIB, device="cuda")
    assert len({s["segment_pool_id"] for s in torch.cuda.memory_snapshot()}) >= 3
    del y, z


@pytest.mark.parametrize(
    "code",
    [
        "torch.nn.LSTM(8, 8).cuda()(torch.zeros(2, 3, 8, device='cuda'))",
        "torch.linalg.svd(torch.zeros(4, 4, device='cuda'))",
        "torch.fft.fft(torch.zeros(4, device='cuda'))",
    ],
)
def test_what_is_not_there_raises(code: str) -> None:
    """What the null GPU cannot do is an ordinary exception, neither a crash nor nonsense."""
    assert child(f"try:\n    {code}\nexcept RuntimeError:\n    print('refused')") == "refused"
