"""Streams in a traced step: where backward runs, what `record_stream` holds, and addresses of fake tensors."""

import torch

from memguard.forecast.child import in_child
from memguard.forecast.session import trace
from memguard.forecast.setting import Setting
from memguard.forecast.trace import Kind


def events_of(step):
    events = in_child(lambda: trace(lambda: (None, None, step), Setting(steps=1))).events
    return events[next(i for i, event in enumerate(events) if event.kind == Kind.STEP) :]


def test_a_backward_takes_memory_on_the_stream_of_its_forward():
    """As PyTorch's engine does: the gradient of what was made on a side stream is made there."""

    def step():
        x = torch.zeros(1024, device="cuda", requires_grad=True)
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            y = x.exp()
        y.sin().sum().backward()

    made = [event.stream for event in events_of(step) if event.kind == Kind.ALLOC and event.nbytes == 4096]
    side = max(made)
    assert made == [0, side, 0, 0, 0, side]  # x, its exp, the sine; the cosine and its product, the gradient of exp


def test_memory_that_another_stream_uses_is_recorded():
    """A tensor's own block, and which stream uses it."""

    def step():
        x = torch.zeros(1024, device="cuda")
        side = torch.cuda.Stream()
        x.record_stream(side)
        torch.zeros(0, device="cuda").record_stream(side)

    alloc, recorded = (event for event in events_of(step) if event.kind in (Kind.ALLOC, Kind.RECORD_STREAM))
    assert (recorded.kind, recorded.block) == (Kind.RECORD_STREAM, alloc.block)
    assert recorded.nbytes > 0


def test_addresses_tell_which_tensors_share_memory():
    """A view has its base's address, other tensors have others, and an empty one has none."""

    def step():
        x, y = torch.zeros(64, device="cuda"), torch.zeros(64, device="cuda")
        assert x.data_ptr() == x.view(8, 8).data_ptr() == x[8:].data_ptr() - 32
        assert x.untyped_storage().data_ptr() == x[8:].untyped_storage().data_ptr()
        assert x.data_ptr() != y.data_ptr()
        assert torch.zeros(0, device="cuda").data_ptr() == 0

    events_of(step)
