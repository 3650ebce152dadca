"""What cuDNN took for itself on an H200 (cuDNN 9.19, torch 2.11), and what the rules say of the same calls."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from memguard.forecast.child import in_child
from memguard.forecast.kernels.convolution_workspaces import (
    Convolution,
    likely_bytes,
    most_bytes,
    tf32_is_slow,
)
from memguard.forecast.session import trace
from memguard.forecast.setting import Setting
from memguard.forecast.trace import Kind

FP32, FP16, BF16 = torch.float32, torch.float16, torch.bfloat16

TAKEN = [
    ("output", FP16, (64, 64, 56, 56), (64, 64, 3, 3), (64, 64, 56, 56), 51_454_099),
    ("output", FP16, (64, 3, 224, 224), (64, 3, 7, 7), (64, 64, 112, 112), 128_475_664),
    ("output", BF16, (32, 3, 224, 224), (64, 3, 7, 7), (32, 64, 112, 112), 77_120_528),
    ("output", FP32, (256, 3, 32, 32), (64, 3, 7, 7), (256, 64, 16, 16), 19_960_592),
    ("output", FP32, (64, 3, 224, 224), (16, 3, 3, 3), (64, 16, 112, 112), 0),
    ("output", FP32, (4, 512, 40, 40), (128, 512, 1, 1), (4, 128, 40, 40), 0),
    ("output", FP16, (64, 512, 28, 28), (1024, 512, 1, 1), (64, 1024, 14, 14), 77_070_483),
    ("input", BF16, (16, 128, 112, 112), (128, 128, 3, 3), (16, 128, 112, 112), 103_055_507),
    ("weight", BF16, (16, 512, 28, 28), (512, 512, 3, 3), (16, 512, 28, 28), 30_408_720),
    ("weight", BF16, (32, 128, 28, 28), (128, 128, 1, 1), (32, 128, 28, 28), 2_097_152),
    ("weight", FP32, (4, 1024, 40, 40), (2048, 1024, 1, 1), (4, 2048, 40, 40), 33_554_832),
]
"""What it makes, of which type, input, weight, output, and the bytes; all in the usual layout."""


def call_of(makes, dtype, tensor, weight, output, last=False):
    values = [torch.empty(shape, dtype=dtype, device="meta") for shape in (tensor, weight, output)]
    return Convolution(
        makes=makes,
        tensor=values[0],
        weight=values[1],
        output=values[2],
        stride=(round(tensor[2] / output[2]),) * 2,
        groups=tensor[1] // weight[1],
        transposed=False,
        channels_last=last,
    )


@pytest.mark.parametrize(("makes", "dtype", "tensor", "weight", "output", "taken"), TAKEN)
def test_a_convolution_copies_what_is_not_in_channels_last(makes, dtype, tensor, weight, output, taken):
    """To the byte but for up to 400 of the kernel's own."""
    call = call_of(makes, dtype, tensor, weight, output)
    assert 0 <= taken - likely_bytes(call) <= 400
    assert most_bytes(call) >= taken


def test_sums_in_fp32_are_split_for_all_multiprocessors():
    """The weight's gradient of 128 to 128 channels has 14 results beside, that of a Conv1d in wav2vec2 two."""
    image, kernel = (32, 128, 28, 28), (128, 128, 3, 3)
    assert likely_bytes(call_of("weight", FP32, image, kernel, image)) == pytest.approx(34_538_151, abs=700)
    audio = call_of("weight", FP32, (4, 512, 12799), (512, 512, 3), (4, 512, 6399))
    assert likely_bytes(audio) == pytest.approx(166_707_567, abs=700)


def test_channels_last_needs_no_copies():
    """Nothing for the output; a depthwise weight's gradient is made in eight parts for each example."""
    image, kernel = (64, 64, 56, 56), (64, 64, 3, 3)
    assert likely_bytes(call_of("output", BF16, image, kernel, image, last=True)) == 0
    image, kernel = (32, 768, 7, 7), (768, 1, 7, 7)
    assert likely_bytes(call_of("weight", BF16, image, kernel, image, last=True)) == 38_535_168
    assert likely_bytes(call_of("weight", BF16, image, kernel, image)) == 0


@pytest.mark.parametrize(
    ("capability", "slow"), [((8, 0), False), ((8, 6), True), ((8, 9), True), ((9, 0), False), ((12, 0), True)]
)
def test_where_tensor_cores_gain_little_in_tf32(capability, slow):
    """GeForce and the chips like it, from Ampere to Blackwell; not the A100 and what follows it."""
    assert tf32_is_slow(capability) is slow


COPIES = 200 * (64 + 128) * 43 * 43 * 4 + 128 * 64 * 9 * 4
SLOW = [
    (
        "output",
        (200, 64, 43, 43),
        (128, 64, 3, 3),
        (200, 128, 43, 43),
        False,
        COPIES,
    ),
    ("input", (200, 64, 43, 43), (128, 64, 3, 3), (200, 128, 43, 43), False, 0),
    (
        "weight",
        (200, 64, 43, 43),
        (128, 64, 3, 3),
        (200, 128, 43, 43),
        False,
        COPIES,
    ),
    ("weight", (480, 64, 86, 86), (64, 64, 3, 3), (480, 64, 86, 86), False, 0),
    ("weight", (323, 320, 3, 3), (1280, 320, 1, 1), (323, 1280, 3, 3), False, 323 * 1280 * 320 * 4),
    ("weight", (700, 320, 3, 3), (1280, 320, 1, 1), (700, 1280, 3, 3), False, 0),
    ("weight", (64, 96, 1, 1), (24, 96, 1, 1), (64, 24, 1, 1), False, 0),
    ("output", (8, 96, 21, 21), (96, 1, 7, 7), (8, 96, 21, 21), True, 4 * 2 * 8 * 96 * 441 * 4 + 16 * 96 * 49 * 4),
    ("output", (8, 96, 21, 21), (96, 1, 7, 7), (8, 96, 21, 21), False, 0),
]
"""What it makes, input, weight, output, whether in channels last, and the bytes with one multiprocessor."""


@pytest.mark.parametrize(("makes", "tensor", "weight", "output", "last", "taken"), SLOW)
def test_where_tf32_is_slow_fewer_copies_are_made_in_fp32(makes, tensor, weight, output, last, taken):
    """For the output, and for the weight's gradient below a bound; per example up to another."""
    call = call_of(makes, FP32, tensor, weight, output, last)
    assert likely_bytes(call, 1, slow_tf32=True) == taken
    assert likely_bytes(call, 1, slow_tf32=True) <= max(most_bytes(call), taken)


def test_half_precision_has_one_rule_everywhere():
    """There tensor cores pay on every chip."""
    call = call_of("output", FP16, (64, 64, 56, 56), (64, 64, 3, 3), (64, 64, 56, 56))
    assert likely_bytes(call, slow_tf32=True) == likely_bytes(call)


@pytest.mark.parametrize(
    ("makes", "dtype", "tensor", "weight", "taken"),
    [
        ("weight", FP32, (256, 64, 8, 8), (64, 64, 3, 3), 79_691_776),
        ("weight", FP32, (256, 256, 2, 2), (256, 256, 3, 3), 28_311_552),
        ("weight", FP32, (4, 2048, 40, 40), (256, 2048, 3, 3), 209_977_488),
        ("weight", FP32, (32, 16, 112, 112), (96, 16, 1, 1), 181_823_583),
        ("output", FP16, (16, 512, 28, 28), (512, 512, 3, 3), 47_186_351),
    ],
)
def test_the_bound_covers_what_no_rule_explains(makes, dtype, tensor, weight, taken):
    """Transforms, and partial results in fp32 of long sums."""
    output = (tensor[0], weight[0], *tensor[2:])
    assert most_bytes(call_of(makes, dtype, tensor, weight, output)) >= taken


def likely_of(**setting):
    def build():
        layer = nn.Conv2d(64, 64, 3, padding=1).cuda()
        x = torch.zeros(8, 64, 32, 32, device="cuda")
        return layer, None, lambda: F.relu(layer(x)).sum().backward()

    events = in_child(lambda: trace(build, Setting(steps=1, **setting))).events
    return [event.nbytes for event in events if event.kind == Kind.WORKSPACE]


def test_only_gpus_with_these_tensor_cores_take_workspaces():
    """Older ones and those that only imitate a GPU have none in the figure."""
    handled = 2 * 8 * 64 * 32 * 32 * 4 + 64 * 64 * 9 * 4
    assert likely_of(multiprocessors=132) == [handled, handled + 14 * 64 * 64 * 9 * 4]
    assert likely_of(compute_capability=(7, 5)) == likely_of(cudnn_workspaces=False) == []
