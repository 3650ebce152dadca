"""With memguard and without: the same weights to the bit, the same bytes at each batch's end, on real kernels."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

import memguard
from memguard.integrations.loop import plain_loop
from tests.gpu.card import IS_REAL
from tests.gpu.models import TinyGPT, images, resnet

BATCHES = 60
REPEATABLE = [SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]
"""Kernels of attention whose backward can be told to give the same bits each time."""
Program = Callable[[Callable[..., Any]], tuple[list[torch.Tensor], list[int]]]


@pytest.fixture(autouse=True)
def deterministic(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Kernels that give the same bits in each run."""
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cudnn.benchmark = False
    yield
    torch.use_deterministic_algorithms(False)


def finish(net: nn.Module, allocated: list[int]) -> tuple[list[torch.Tensor], list[int]]:
    return [value.detach().cpu() for value in net.state_dict().values()], allocated


def convolutions(guarding: Callable[..., Any]) -> tuple[list[torch.Tensor], list[int]]:
    """ResNet-18 in bf16 autocast."""
    net, allocated = resnet().cuda(), []
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    with guarding(net, optimizer):
        for number in range(BATCHES):
            x, y = images(8 + 4 * (number % 3))
            with torch.autocast("cuda", torch.bfloat16):
                loss = functional.cross_entropy(net(x), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            allocated.append(torch.cuda.memory_allocated())
    return finish(net, allocated)


def language(guarding: Callable[..., Any]) -> tuple[list[torch.Tensor], list[int]]:
    """A small transformer, with dropout's random numbers."""
    net, allocated = TinyGPT(dropout=0.1).cuda(), []
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    with guarding(net, optimizer):
        for number in range(BATCHES):
            text = torch.randint(0, TinyGPT.WORDS, (4, 65 + 16 * (number % 3)), device="cuda")
            loss = net.loss(text)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            allocated.append(torch.cuda.memory_allocated())
    return finish(net, allocated)


def scaled(guarding: Callable[..., Any]) -> tuple[list[torch.Tensor], list[int]]:
    """Half precision with a GradScaler, which skips the steps that overflow."""
    net, allocated = TinyGPT().cuda(), []
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cuda", init_scale=2.0**24, growth_interval=10)
    with guarding(net, optimizer):
        for _ in range(BATCHES):
            text = torch.randint(0, TinyGPT.WORDS, (4, 65), device="cuda")
            optimizer.zero_grad()
            with torch.autocast("cuda", torch.float16):
                loss = net.loss(text)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            allocated.append(torch.cuda.memory_allocated())
    return finish(net, allocated)


def graphed(guarding: Callable[..., Any]) -> tuple[list[torch.Tensor], list[int]]:
    """A part of the model made CUDA graphs of its forward and backward."""
    width, allocated = 256, []
    net = nn.Sequential(nn.Linear(width, width), nn.Sequential(nn.GELU(), nn.Linear(width, width))).cuda()
    sample = torch.zeros(32, width, device="cuda", requires_grad=True)
    net[1] = torch.cuda.make_graphed_callables(net[1], (sample,))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    with guarding(net, optimizer):
        for _ in range(BATCHES):
            optimizer.zero_grad()
            net(torch.randn(32, width, device="cuda")).square().mean().backward()
            optimizer.step()
            allocated.append(torch.cuda.memory_allocated())
    return finish(net, allocated)


def compiled(guarding: Callable[..., Any]) -> tuple[list[torch.Tensor], list[int]]:
    """The same transformer through inductor."""
    torch._dynamo.reset()
    net, allocated = TinyGPT(depth=1).cuda(), []
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    with guarding(net, optimizer):
        fast = torch.compile(net)
        for _ in range(BATCHES):
            text = torch.randint(0, TinyGPT.WORDS, (4, 65), device="cuda")
            optimizer.zero_grad()
            functional.cross_entropy(fast(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten()).backward()
            optimizer.step()
            allocated.append(torch.cuda.memory_allocated())
    return finish(net, allocated)


def run(program: Program, guarding: Callable[..., Any]) -> tuple[list[torch.Tensor], list[int], Any]:
    """Weights, bytes above those at the start, and the random state after it."""
    torch.manual_seed(1)
    start = torch.cuda.memory_allocated()
    with sdpa_kernel(REPEATABLE):
        weights, allocated = program(guarding)
    return weights, [nbytes - start for nbytes in allocated], torch.cuda.get_rng_state()


def same(some: list[torch.Tensor], others: list[torch.Tensor]) -> bool:
    return all(torch.equal(one, other) for one, other in zip(some, others, strict=True))


@pytest.fixture
def closely(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every probe looks at every batch."""
    made = plain_loop.PlainLoop.__init__

    def init(loop: Any, session: Any) -> None:
        made(loop, session)
        session.watch.look_closely(10**6, surely=True)

    monkeypatch.setattr(plain_loop.PlainLoop, "__init__", init)


@pytest.mark.parametrize("program", [convolutions, language, scaled, graphed, compiled], ids=lambda each: each.__name__)
@pytest.mark.parametrize("looks", ["seldom", "closely"])
def test_weights_and_memory_are_those_of_the_twin(
    program: Program, looks: str, fresh: Callable[[], None], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Equal bit for bit and byte for byte, whether memguard looks at a few batches or at all of them."""
    if program is compiled and not (IS_REAL and shutil.which("gcc")):
        pytest.skip("inductor needs a GPU and a compiler")
    if looks == "closely":
        request.getfixturevalue("closely")
    nothing = lambda *args: contextlib.nullcontext()  # noqa: E731
    control, _, _ = run(program, nothing)  # what libraries take once is there from here on
    fresh()
    weights, allocated, random_state = run(program, nothing)
    fresh()
    guarded = run(program, lambda *args: memguard.watch(*args, device="cuda:0", logdir=tmp_path, quiet=True))
    assert guarded[1] == allocated
    assert torch.equal(guarded[2], random_state)
    if not same(control, weights):
        pytest.skip("without memguard, too, its kernels give other bits each time")
    assert len(weights) > 0 and same(guarded[0], weights)
