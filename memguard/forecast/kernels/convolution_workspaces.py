"""What cuDNN's convolutions probably take for themselves, and the most that they were seen to take.

Tensor-core kernels want channels last: operands in the usual layout are copied into the workspace in that layout, and
the result is made there before it is turned back. So a convolution takes its input, weight and output once more, if its
kernel is larger than one point or it steps over points; a product over channels needs no copy. The gradient of a
pointwise weight is one product per example, each with a result of its own in fp32, added up afterwards. TF32 is taken
to be allowed, as it is by default for convolutions.

These rules and the bound are fitted to an H200 with cuDNN 9.19 and torch 2.11, on 7,800 calls of convolutions from 178
programs; cuDNN decides by the shape, so other versions and GPUs may do other.

On chips of compute capability 8.6, 8.7, 8.9 and 12.x a multiprocessor multiplies TF32 hardly faster than plain fp32
(NVIDIA's data sheets: 64 products a clock beside 128 on GA10x, 156 beside 19.5 TFLOPS on an A100), so that the copies
pay less often. Published runs in fp32 on an RTX 3060 and an RTX 4060 (torch 2.6, cuDNN 9.1) agree with this: the
output is made in channels last, with copies; the input's gradient is not; the weight's is, while the copies stay below
1.5 GiB; a pointwise weight's is made per example up to 600 MiB. Depthwise kernels in channels last fill each channel up
to the four that a TF32 load takes. Only peaks were published, not single calls, so a range has to cover the other rules
too. In half precision tensor cores pay on every chip, and the first rules are used.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Literal, final

import torch
from torch import Tensor

from memguard.forecast.kernels.scratch_parts import HALVES, nbytes_of
from memguard.text.units import MIB

CAPABILITY: Final = (8, 0)
"""From here on the tensor cores take half precision and TF32, which convolutions in fp32 use unless it is forbidden."""
_SLOW_TF32: Final = ((8, 6), (8, 7), (8, 9))
"""Here, and from 12.0 on, tensor cores take TF32 hardly faster than the other units take fp32."""
_SHORT = 64
"""Sums of fewer terms, as of 3 channels and a kernel of 3 x 3, go without a workspace."""
_PER_EXAMPLE_BYTES = 32 * MIB
"""The most that the results of all examples may come to, where each has its own."""
_PER_EXAMPLE_BYTES_SLOW, _WEIGHT_COPIES_BYTES_SLOW = 600 * MIB, 1536 * MIB
"""On chips with slow TF32: the same, and the most that the copies for the gradient of a weight may come to."""
_TF32_CHANNELS = 4
"""Channels that one load of TF32 takes: 16 bytes."""
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


def tf32_is_slow(capability: tuple[int, int]) -> bool:
    """Whether tensor cores of this compute capability are no faster in TF32 than the other units are in fp32."""
    return capability in _SLOW_TF32 or capability >= (12, 0)


def likely_bytes(call: Convolution, multiprocessors: int = 132, *, slow_tf32: bool = False) -> int:
    """What a call takes by the rules; nothing for types that tensor cores don't multiply.

    Args:
        call: The call.
        multiprocessors: Of the GPU: sums are split until all have work.
        slow_tf32: By the rules for chips of which `tf32_is_slow` is true.
    """
    if call.tensor.dtype not in (*HALVES, torch.float32):
        return 0
    if slow_tf32 and call.tensor.dtype == torch.float32:
        return _with_slow_tf32(call, multiprocessors)
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


def _with_slow_tf32(call: Convolution, multiprocessors: int) -> int:
    """In fp32, where tensor cores gain little: copies for the output, some for the gradient of the weight."""
    copies = nbytes_of(call.tensor) + nbytes_of(call.output)
    if call.groups > 1:
        filled = call.channels_last and call.weight.shape[1] == 1 and call.makes == "output"
        return _TF32_CHANNELS * copies + _TF32_CHANNELS**2 * nbytes_of(call.weight) if filled else 0
    if call.channels_last or call.makes == "input":
        return 0
    if call.pointwise and not call.strided:
        own = call.tensor.shape[0] * call.floats
        one_point = math.prod(call.tensor.shape[2:]) == 1
        return own if call.makes == "weight" and not one_point and own <= _PER_EXAMPLE_BYTES_SLOW else 0
    if math.prod(call.weight.shape[1:]) < _SHORT and not call.pointwise and not call.transposed:
        return 0
    taken = copies + nbytes_of(call.weight)
    if call.makes == "output":
        return taken
    taken += _partial_bytes(call, multiprocessors)
    return taken if not call.pointwise and taken <= _WEIGHT_COPIES_BYTES_SLOW else 0


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
