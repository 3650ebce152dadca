"""Two training steps for the forecast, as a user has them in a file; with a function that measures one."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

import memguard
from tests.gpu.models import TinyGPT, resnet

Made = tuple[nn.Module, torch.optim.Optimizer, Callable[[], None]]


def build_gpt(batch: int = 8) -> Made:
    """A decoder of 21 million weights in bf16 autocast."""
    net = TinyGPT(width=512, depth=6).cuda()
    optimizer = torch.optim.AdamW(net.parameters())
    text = torch.randint(0, TinyGPT.WORDS, (batch, 257), device="cuda")

    def step() -> None:
        with torch.autocast("cuda", torch.bfloat16):
            loss = net.loss(text)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return net, optimizer, step


def build_resnet(batch: int = 32) -> Made:
    """ResNet-18 on images of 128 x 128, in bf16 autocast."""
    net = resnet().cuda()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    x, y = torch.randn(batch, 3, 128, 128, device="cuda"), torch.zeros(batch, dtype=torch.long, device="cuda")

    def step() -> None:
        with torch.autocast("cuda", torch.bfloat16):
            loss = functional.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return net, optimizer, step


BUILDS: dict[str, Callable[[], Made]] = {"gpt": build_gpt, "resnet": build_resnet}


def forecast_and_truth(name: str) -> dict[str, Any]:
    """The forecast of a step whose model is on the GPU already, then what three steps take."""
    net, optimizer, step = BUILDS[name]()
    before = torch.cuda.memory_allocated()
    found = memguard.forecast(step, model=net, optimizer=optimizer)
    after = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    peaks = []
    for _ in range(3):
        torch.cuda.reset_peak_memory_stats()
        step()
        peaks.append(torch.cuda.max_memory_allocated())
    return {
        "forecast": found.to_json(),
        "peaks": peaks,
        "reserved": torch.cuda.max_memory_reserved(),
        "taken": after - before,
    }


if __name__ == "__main__":
    print(json.dumps(forecast_and_truth(sys.argv[1])))
