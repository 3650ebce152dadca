"""One training on the real allocator (null GPU) and on the virtual GPU: ``python -m tests.bench.virtual_twins``."""

from __future__ import annotations

import argparse
import itertools
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from tests.bench.rows import Row
from tests.nullgpu import environment

MIB = 1 << 20
STEPS = 3


@dataclass(frozen=True)
class Case:
    """One training: which model, in which precision, with which AdamW, checkpointed or not."""

    model: str
    amp: bool
    fused: bool
    checkpointed: bool

    def __str__(self) -> str:
        words = [self.model, "bf16" if self.amp else "fp32", "fused" if self.fused else "default"]
        return " ".join([*words, "checkpointed"] if self.checkpointed else words)


def cases() -> Iterator[Case]:
    """Every combination."""
    for model, amp, fused, checkpointed in itertools.product(MODELS, (False, True), (False, True), (False, True)):
        yield Case(model, amp, fused, checkpointed)


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        weights = (q @ k.transpose(-1, -2) * 0.125).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.attention, self.norm1, self.norm2 = Attention(width, 4), nn.LayerNorm(width), nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


def mlp() -> tuple[nn.Sequential, Callable[[], torch.Tensor]]:
    layers = [nn.Sequential(nn.Linear(1024, 1024), nn.ReLU()) for _ in range(4)]
    return nn.Sequential(*layers), lambda: torch.zeros(256, 1024)


def conv() -> tuple[nn.Sequential, Callable[[], torch.Tensor]]:
    widths = (3, 32, 64, 64)
    stages = [
        nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU(), nn.MaxPool2d(2))
        for a, b in itertools.pairwise(widths)
    ]
    return nn.Sequential(*stages, nn.Flatten(), nn.Linear(64 * 16, 10)), lambda: torch.zeros(32, 3, 32, 32)


def transformer() -> tuple[nn.Sequential, Callable[[], torch.Tensor]]:
    head = nn.Sequential(nn.LayerNorm(256), nn.Linear(256, 2048))
    blocks = [Block(256) for _ in range(4)]
    return nn.Sequential(nn.Embedding(2048, 256), *blocks, head), lambda: torch.zeros(8, 128, dtype=torch.int64)


MODELS = {"mlp": mlp, "conv": conv, "transformer": transformer}


def train(case: Case, device: str) -> None:
    """A few steps of AdamW."""
    net, batch = MODELS[case.model]()
    net = net.to(device)
    optimizer = torch.optim.AdamW(net.parameters(), fused=True if case.fused else None)
    for _ in range(STEPS):
        x = batch().to(device)
        with torch.autocast(device, dtype=torch.bfloat16, enabled=case.amp):
            for part in net:
                x = checkpoint(part, x, use_reentrant=False) if case.checkpointed else part(x)
            loss = F.cross_entropy(x.flatten(0, -2), torch.zeros(x[..., 0].numel(), dtype=torch.int64, device=device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def on_virtual(case: Case) -> dict[str, int]:
    """Peaks on the virtual GPU."""
    from memguard.backends.virtual import VirtualBackend

    backend = VirtualBackend(24 << 30, conf="")
    backend.install()
    try:
        train(case, "cpu")
        return _peaks(backend.memory_stats())
    finally:
        backend.remove()


def on_cuda(case: Case) -> dict[str, int]:
    """Peaks on the CUDA device there is."""
    import gc

    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    train(case, "cuda")
    return _peaks(torch.cuda.memory_stats())


def _peaks(stats: dict[str, int]) -> dict[str, int]:
    return {kind: stats[f"{kind}_bytes.all.peak"] for kind in ("allocated", "reserved")}


def measure(capability: str = "8.0") -> list[Row]:
    """Peaks side by side; none without the null GPU."""
    if not environment.stamp(environment.folder()).exists():
        print("the null GPU is not set up: python -m tests.nullgpu.setup")
        return []
    command = [sys.executable, "-m", "tests.nullgpu.run", "--total", "24GiB", "--cc", capability, "--"]
    command += ["python", "-W", "ignore", "-m", "tests.bench.virtual_twins", "--cuda"]
    real = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    rows = []
    for case in cases():
        virtual, cuda = on_virtual(case), real[str(case)]
        for kind in ("allocated", "reserved"):
            rows.append(Row(f"{case}, {kind} peak, null GPU", cuda[kind] / MIB, "MiB"))
            rows.append(Row(f"{case}, {kind} peak, virtual GPU", virtual[kind] / MIB, "MiB"))
    return rows


def main() -> None:
    """Prints a table; with --cuda, the peaks of this process's CUDA device as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cuda", action="store_true")
    parser.add_argument("--cc", default="8.0", help="compute capability of the null GPU (%(default)s)")
    options = parser.parse_args()
    if options.cuda:
        print(json.dumps({str(case): on_cuda(case) for case in cases()}))
        return
    torch.set_num_threads(1)
    print(f"{'MiB':44}{'allocated: null':>16}{'virtual':>9}{'':>8}{'reserved: null':>18}{'virtual':>9}")
    rows = measure(options.cc)
    for i in range(0, len(rows), 4):
        a, va, r, vr = (row.value for row in rows[i : i + 4])
        case = rows[i].label.partition(",")[0]
        print(f"{case:44}{a:16.2f}{va:9.2f}{va / a - 1:+8.1%}{r:18.0f}{vr:9.0f}{vr / r - 1:+8.1%}")


if __name__ == "__main__":
    main()
