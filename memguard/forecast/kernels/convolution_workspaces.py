"""What cuDNN's convolutions probably take for themselves, and the most that they were seen to take.

Tensor-core kernels want channels last: operands in the usual layout are copied into the workspace in that layout, and
the result is made there before it is turned back. So a convolution takes its input, weight and output once more, if its
kernel is larger than one point or it steps over points; a product over channels needs no copy. The gradient of a
pointwise weight is one product per example, each with a result of its own in fp32, added up afterwards. TF32 is taken
to be allowed, as it is by default for convolutions.

The rules and the bound are fitted to an H200 with cuDNN 9.19 and torch 2.11, on 7,800 calls of convolutions from 178
programs; cuDNN decides by the shape, so other versions and GPUs may do other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Literal, final

import torch
from torch import Tensor

from memguard.forecast.kernels.scratch_parts import HALVES, nbytes_of
from memguard.units import MIB

CAPABILITY: Final = (8, 0)
"""From here on the tensor cores take half precision and TF32, which convolutions in fp32 use unless it is forbidden."""
_SHORT = 64
"""Sums of fewer terms, as of 3 channels and a kernel of 3 x 3, go without a workspace."""
_PER_EXAMPLE_BYTES = 32 * MIB
"""The most that the results of all examples may come to, where each has its own."""
_DEPTHWISE_SPLITS, _DEPTHWISE_CHANNELS, _DEPTHWISE_POINTS = 8, 32, 49
"""Partial results of a depthwise weight's gradient for each example, channels in such groups, the least of points."""
_TILE, _TERMS = 128, 512
"""Side of what one multiprocessor makes of a weight's gradient, and the terms for which a split is worth it."""
_ALIGNED = {torch.float16: 4, torch.bfloat16: 8}
"""Channels of the input are filled up to a multiple of this."""
_MOST_TIMES, _MOST_WEIGHTS = 10, 2
_MOST_BYTES = {"output": 16 * MIB, "input": 16 * MIB, "weight": 36 * MIB}
_MOST_WEIGHTS_IN_FP32, _MOST_BYTES_IN_FP32 = 8, 80 * MIB
"""Of the gradient of a weight in fp32 that is not strided, for which there are transforms (Winograd's)."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Convolution:
    """One call of cuDNN: the output, the gradient of the input or that of the weight."""

    makes: Literal["output", "input", "weight"]
    tensor: Tensor
    weight: Tensor
    output: Tensor
    stride: tuple[int, ...]
    groups: int
    transposed: bool
    channels_last: bool

    @property
    def pointwise(self) -> bool:
        """Whether the kernel is one point."""
        return math.prod(self.weight.shape[2:]) == 1

    @property
    def strided(self) -> bool:
        """Whether it steps over points."""
        return any(step != 1 for step in self.stride)

    @property
    def floats(self) -> int:
        """Bytes of the weight in fp32, in which partial results are kept."""
        return self.weight.numel() * 4

    @property
    def filled(self) -> int:
        """Bytes of the input and the weight with their channels filled up."""
        channels = self.weight.shape[1]
        if self.transposed or self.groups > 1:
            return nbytes_of(self.tensor) + nbytes_of(self.weight)
        aligned = _ALIGNED.get(self.tensor.dtype, 1)
        full = -(-channels // aligned) * aligned
        return (nbytes_of(self.tensor) + nbytes_of(self.weight)) * full // channels


def most_bytes(call: Convolution) -> int:
    """What a call takes at most: all it handles, and partial results of the weight or a transform of all."""
    handled = call.filled + nbytes_of(call.output)
    in_fp32 = call.tensor.dtype == torch.float32 and call.makes == "weight" and not (call.pointwise or call.strided)
    weights = _MOST_WEIGHTS_IN_FP32 if in_fp32 else _MOST_WEIGHTS
    room = _MOST_BYTES_IN_FP32 if in_fp32 else _MOST_BYTES[call.makes]
    return handled + min(_MOST_TIMES * handled, max(weights * call.floats, room))


def likely_bytes(call: Convolution, multiprocessors: int = 132) -> int:
    """What a call takes by the rule; nothing for types that tensor cores don't multiply."""
    if call.tensor.dtype not in (*HALVES, torch.float32):
        return 0
    if call.groups > 1:
        return _of_groups(call)
    if call.channels_last:
        return _of_channels_last(call)
    if call.pointwise:
        return _of_pointwise(call)
    short = math.prod(call.weight.shape[1:]) < _SHORT and not call.transposed
    if short and (call.makes == "output" or call.tensor.dtype == torch.float32):
        return 0
    return call.filled + nbytes_of(call.output) + _partial_bytes(call, multiprocessors)


def _partial_bytes(call: Convolution, multiprocessors: int) -> int:
    """In fp32 the sum for a weight's gradient is split until all multiprocessors have work, each part with a result."""
    if call.makes != "weight" or call.tensor.dtype != torch.float32:
        return 0
    rows, columns = call.weight.shape[0], math.prod(call.weight.shape[1:])
    tile = _TILE if rows >= _TILE else _TILE // 2
    terms = call.output.numel() // call.output.shape[1] if not call.transposed else 0
    splits = multiprocessors // (-(-rows // tile) * -(-columns // tile))
    return min(splits, terms // _TERMS) * call.floats


def _of_pointwise(call: Convolution) -> int:
    """A kernel of one point is a product over channels, unless it steps over points."""
    copies = nbytes_of(call.tensor) + nbytes_of(call.output)
    if call.strided:
        return copies
    if call.makes != "weight" or math.prod(call.tensor.shape[2:]) == 1:
        return 0
    own = call.tensor.shape[0] * call.floats
    return own if own <= _PER_EXAMPLE_BYTES else copies


def _of_groups(call: Convolution) -> int:
    """Depthwise: PyTorch's own kernels, and in channels last cuDNN's with partial gradients of the weight."""
    large = math.prod(call.tensor.shape[2:]) >= _DEPTHWISE_POINTS
    depthwise = call.weight.shape[1] == 1 and large and call.tensor.dtype in HALVES
    if call.makes != "weight" or not call.channels_last or not depthwise:
        return 0
    channels = call.weight.shape[0]
    full = -(-channels // _DEPTHWISE_CHANNELS) * _DEPTHWISE_CHANNELS
    return _DEPTHWISE_SPLITS * call.tensor.shape[0] * call.floats * full // channels


def _of_channels_last(call: Convolution) -> int:
    """In the layout that is wanted: only channels that must be filled up are copied."""
    short = math.prod(call.weight.shape[1:]) < _SHORT and call.makes == "output"
    filled = call.filled
    return filled if filled > nbytes_of(call.tensor) + nbytes_of(call.weight) and not short else 0
