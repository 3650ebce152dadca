"""What one operator program is, and the tensors it gets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

CUDA = "cuda"
TOKENS = (64, 128, 256)
IMAGE = (8, 32, 32, 32)
HEADS = (4, 8, 128, 64)
LOGITS = (512, 1000)


@dataclass(frozen=True)
class Input:
    """A tensor without a gradient: indices below `below`, a mask, or constants of the program's precision."""

    kind: str
    shape: tuple[int, ...]
    below: int = 0


def indices(below: int, *shape: int) -> Input:
    """Integers."""
    return Input("indices", shape, below)


def mask(*shape: int) -> Input:
    """Booleans."""
    return Input("mask", shape)


def constant(*shape: int) -> Input:
    """Numbers that ask for no gradient."""
    return Input("constant", shape)


ROWS = indices(128, 64, 32)
LABELS = indices(1000, 512)
WORDS = indices(1000, 16, 128)


@dataclass(frozen=True)
class Operator:
    """A function of tensors, run forwards and backwards."""

    name: str
    call: Callable[..., Tensor]
    inputs: tuple[tuple[int, ...] | Input, ...]
    halves: bool
    """Also in bfloat16."""
    autocast: bool
    """Also under bf16 autocast."""

    @property
    def precisions(self) -> tuple[str, ...]:
        """Those in which it is compared."""
        return ("fp32", *(["amp"] if self.autocast else []), *(["bf16"] if self.halves else []))


def operator(
    name: str,
    call: Callable[..., Tensor],
    *inputs: tuple[int, ...] | Input,
    halves: bool = False,
    autocast: bool = False,
) -> Operator:
    """A program of one operator; shapes are of tensors that ask for gradients."""
    return Operator(name, call, inputs, halves, autocast)


def build(program: Operator, precision: str) -> tuple[Any, Any, Callable[[], None]]:
    """Model (none), optimizer (none), and the step: forward, backward from ones, gradients dropped."""
    torch.backends.cuda.enable_cudnn_sdp(False)
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    tensors = [_tensor(given, dtype) for given in program.inputs]

    def step() -> None:
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=precision == "amp"):
            out = program.call(*tensors)
            if out.is_complex():
                out = torch.view_as_real(out)
        start = torch.ones_like(out)
        out.backward(start)
        del out, start
        for tensor in tensors:
            tensor.grad = None

    return None, None, step


def _tensor(given: tuple[int, ...] | Input, dtype: torch.dtype) -> Tensor:
    if not isinstance(given, Input):
        return torch.zeros(given, device=CUDA, dtype=dtype, requires_grad=True)
    if given.kind == "indices":
        return torch.randint(0, given.below, given.shape, device=CUDA)
    if given.kind == "mask":
        return torch.zeros(given.shape, device=CUDA, dtype=torch.bool)
    return torch.zeros(given.shape, device=CUDA, dtype=dtype)
