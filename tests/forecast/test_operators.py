"""Operators whose CUDA kernels take more than their outputs do: event by event what the real allocator (2.15) saw."""

import pytest
import torch
import torch.nn.functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from memguard.forecast.child import in_child
from memguard.forecast.session import trace
from memguard.forecast.setting import Setting
from memguard.forecast.trace import Kind

TOKENS = (64, 128, 256)
PIXELS = (8, 16, 32, 32)
M = 8388608
SEEN = {
    "prod": (
        lambda x: x.prod(-1),
        TOKENS,
        [*(32768, 32768, 2097152, 65536, 16777216, -16777216, 8, -8, M, M, -M, -65536, -2097152, -32768, -32768, -M)],
    ),
    "cumprod": (
        lambda x: x.cumprod(-1),
        TOKENS,
        [M, M, M, 2097152, 1, 256, 4, -4, -256, -1, M, M, M, -M, -M, M, -M, -2097152, -M, -M, -M, -M],
    ),
    "unfold": (
        lambda x: F.unfold(x, 3, padding=1),
        PIXELS,
        [524288, 4718592, -524288, 4718592, 4718592, -4718592, -4718592, -4718592],
    ),
    "pdist": (F.pdist, (128, 64), [32512, 32512, 32768, 4161536, -4161536, -32512, -32512, -32768]),
    "trace": (torch.trace, (64, 64), [4, 4, 16384, 512, -512, -4, -4, -16384]),
}


def traced(call, *shape):
    def build():
        x = torch.zeros(shape, device="cuda", requires_grad=True)

        def step():
            out = call(x)
            start = torch.ones_like(out)
            out.backward(start)
            del out, start
            x.grad = None

        return None, None, step

    return in_child(lambda: trace(build, Setting(steps=1, multiprocessors=132)))


@pytest.mark.parametrize("name", SEEN)
def test_an_operator_takes_what_its_cuda_kernel_takes(name):
    """Sizes and order of one forward and backward."""
    call, shape, seen = SEEN[name]
    events = traced(call, *shape).events
    events = events[next(i for i, event in enumerate(events) if event.kind == Kind.STEP) :]
    sizes, found = {}, []
    for event in events:
        if event.kind == Kind.ALLOC:
            sizes[event.block] = event.nbytes
            found.append(event.nbytes)
        elif event.kind == Kind.FREE:
            found.append(-sizes[event.block])
    assert found == seen


@pytest.mark.parametrize(
    ("shape", "dtype", "seen"),
    [
        ((2048, 8192), torch.float32, [134217728, 201326847, -201326847, -134217728]),
        ((300, 5001), torch.bfloat16, [12002400, 15003647, -15003647, -12002400]),
        ((2, 1000000), torch.float32, [8000000, 12200191, -12200191, 12200191, -12200191, -8000000]),
        ((5000, 2000), torch.float32, [16000, -16000]),
    ],
)
def test_a_sort_takes_what_its_number_of_rows_asks_for(shape, dtype, seen):
    """Many long rows are sorted in segments, a few very long ones one by one."""

    def build():
        x = torch.zeros(shape, device="cuda", dtype=dtype)
        return None, None, lambda: torch.sort(x, descending=True)

    events = in_child(lambda: trace(build, Setting(steps=1))).events
    sizes = {event.block: event.nbytes for event in events if event.kind == Kind.ALLOC}
    step = events[next(i for i, event in enumerate(events) if event.kind == Kind.STEP) :]
    found = [sizes[e.block] * (1 if e.kind == Kind.ALLOC else -1) for e in step if e.kind in (Kind.ALLOC, Kind.FREE)]
    assert found[2:-2] == seen


@pytest.mark.parametrize(
    ("dtype", "capability", "seen"),
    [
        (torch.bfloat16, (9, 0), [32768, 240, 67584, -67584, -240]),
        (torch.bfloat16, (10, 0), [32768, 240, 709632, -709632, -240]),
        (torch.bfloat16, (8, 0), [32768]),
        (torch.float32, (9, 0), [65536]),
    ],
)
def test_products_of_groups_are_one_kernel_in_bf16_from_hopper_on(dtype, capability, seen):
    """Routed experts: other types are products in turn, which PyTorch's fake kernel refuses; gradients work too."""
    if not hasattr(F, "grouped_mm"):
        pytest.skip("this PyTorch has no grouped_mm")

    def build():
        x = torch.zeros(256, 128, device="cuda", dtype=dtype, requires_grad=True)
        weight = torch.zeros(4, 128, 64, device="cuda", dtype=dtype, requires_grad=True)
        ends = torch.tensor([64, 128, 192, 256], device="cuda", dtype=torch.int32)

        def step():
            out = F.grouped_mm(x, weight, offs=ends)
            out.backward(torch.ones_like(out))
            assert x.grad.shape == x.shape and weight.grad.shape == weight.shape

        return None, None, step

    found = in_child(lambda: trace(build, Setting(steps=1, multiprocessors=132, compute_capability=capability)))
    events = found.events[next(i for i, event in enumerate(found.events) if event.kind == Kind.STEP) :]
    sizes = {event.block: event.nbytes for event in events if event.kind == Kind.ALLOC}
    signs = {Kind.ALLOC: 1, Kind.FREE: -1}
    listed = [signs[event.kind] * sizes[event.block] for event in events if event.kind in signs]
    assert listed[: len(seen)] == seen


@pytest.mark.parametrize("literal", [False, True])
def test_packed_sequences_hold_as_many_numbers_as_their_lengths_say(literal):
    """Lengths that the step brings along or writes down are known; the packed tensor has no padding."""
    given = torch.tensor([9, 5, 2])

    def there_and_back(x):
        lengths = torch.tensor([9, 5, 2]) if literal else given
        packed = pack_padded_sequence(x, lengths, batch_first=True)
        assert packed.data.shape == (16, 7)
        padded, again = pad_packed_sequence(packed, batch_first=True)
        assert padded.shape == (3, 9, 7) and again.tolist() == [9, 5, 2]
        return padded

    assert traced(there_and_back, 3, 9, 7).notes == ()
