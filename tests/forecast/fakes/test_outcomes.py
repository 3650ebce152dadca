import gc
import itertools

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from memguard.forecast.child import in_child
from memguard.forecast.fakes.outcomes import Outcomes
from memguard.forecast.session import trace
from memguard.forecast.setting import Setting
from memguard.forecast.trace import Kind

aten = torch.ops.aten
VIEWS = torch._C.DispatchKeySet(torch._C.DispatchKey.ADInplaceOrView)


def seen(tensor):
    """All of a fake tensor that operators and the trace can see."""
    return (
        type(tensor),
        tensor.dtype,
        tensor.shape,
        tensor.stride(),
        tensor.storage_offset(),
        tensor.untyped_storage().nbytes(),
        tensor.fake_device,
        tensor.requires_grad,
        tensor.is_inference(),
        torch._C._dispatch_key_set(tensor),
        {name: value for name, value in vars(tensor).items() if name != "fake_mode"},
    )


CALLS = {
    "new": lambda x, y: (aten.mm.default, (x, y), {}),
    "view": lambda x, y: (aten.transpose.int, (x, 0, 1), {}),
    "part": lambda x, y: (aten.slice.Tensor, (x, 0, 2, 4), {}),
    "several": lambda x, y: (aten.native_layer_norm.default, (x, [8], None, None, 1e-5), {}),
    "views": lambda x, y: (aten.unbind.int, (x,), {}),
    "in place": lambda x, y: (aten.mul_.Scalar, (x, 2), {}),
    "type": lambda x, y: (aten._to_copy.default, (x,), {"dtype": torch.bfloat16}),
    "factory": lambda x, y: (aten.empty.memory_format, ([3, 5],), {"device": torch.device("cpu")}),
    "lists": lambda x, y: (aten._foreach_sqrt.default, ([x, y, x],), {}),
    "types of numbers": lambda x, y: (aten.div.Tensor, (x.to(torch.int64), 2), {}),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_result_made_again_is_what_the_fake_mode_makes(name):
    """Nothing tells the second result, made without the fake mode, from the first, which is the fake mode's."""
    mode = FakeTensorMode()
    outcomes, asked = Outcomes(mode), []
    with mode, torch._C._AutoDispatchBelowAutograd(), torch._C._ExcludeDispatchKeyGuard(VIEWS):  # as in a trace
        x, y = torch.empty(8, 8), torch.empty(8, 8)
        func, args, kwargs = CALLS[name](x, y)
        first = outcomes.of(func, args, kwargs)
        mode.dispatch = lambda *given, **_: asked.append(given)  # from here on nobody may ask it
        second = outcomes.of(func, args, kwargs)
    assert not asked
    assert type(first) is type(second)
    tensors = [first] if isinstance(first, FakeTensor) else list(first)
    again = [second] if isinstance(second, FakeTensor) else list(second)
    assert [seen(t) for t in tensors] == [seen(t) for t in again]
    memory = x.untyped_storage()._cdata
    assert [t.untyped_storage()._cdata == memory for t in tensors] == [
        t.untyped_storage()._cdata == memory for t in again
    ]
    assert [t is x for t in tensors] == [t is x for t in again]


def test_kinds_that_differ_in_anything_are_told_apart():
    """A type of number, a stride, a shape, a dtype: each is another kind."""
    mode = FakeTensorMode()
    outcomes = Outcomes(mode)
    with mode:
        whole = torch.empty(4, 6, dtype=torch.int64)
        results = [
            outcomes.of(aten.mul.Scalar, (whole, 2), {}),
            outcomes.of(aten.mul.Scalar, (whole, 2.0), {}),
            outcomes.of(aten.mul.Scalar, (whole.t(), 2), {}),
            outcomes.of(aten.mul.Scalar, (whole[:2], 2), {}),
            outcomes.of(aten.mul.Scalar, (whole.to(torch.float64), 2), {}),
        ]
    found = [(t.dtype, tuple(t.shape), t.stride()) for t in results]
    assert found == [
        (torch.int64, (4, 6), (6, 1)),
        (torch.float32, (4, 6), (6, 1)),
        (torch.int64, (6, 4), (1, 6)),
        (torch.int64, (2, 6), (6, 1)),
        (torch.float64, (4, 6), (6, 1)),
    ]


def test_lists_are_asked_for_by_kind_and_refused_as_the_fake_mode_refuses():
    """One position of each kind is asked; positions that do not fit each other raise."""
    mode = FakeTensorMode()
    outcomes = Outcomes(mode)
    with mode:
        tensors = [torch.empty(3), torch.empty(2, 2), torch.empty(3), torch.empty(2, 2, dtype=torch.float64)]
        made = outcomes.of(aten._foreach_mul.ScalarList, (tensors, [1.0, 2.0, 3.0, 4.0]), {})
        assert [(t.dtype, t.shape) for t in made] == [(t.dtype, t.shape) for t in tensors]
        assert len({t.untyped_storage()._cdata for t in made}) == 4
        assert outcomes.of(aten._foreach_add_.List, (tensors, tensors), {}) is None
        with pytest.raises(RuntimeError):
            outcomes.of(aten._foreach_add_.List, (tensors, tensors[::-1]), {})


def test_a_number_that_was_written_down_keeps_its_value():
    """Each literal has its own, also after one has been changed in place."""
    mode = FakeTensorMode()
    outcomes = Outcomes(mode)
    with mode:
        with torch._C._DisableTorchDispatch():
            numbers = [torch.tensor(value) for value in (1.5, 2.5, 3.5)]
        literals = [outcomes.literal(aten.lift_fresh.default, number) for number in numbers]
        literals[1].add_(10.0)
        assert [literal.item() for literal in literals] == [1.5, 12.5, 3.5]
        assert seen(literals[0])[:-1] == seen(literals[2])[:-1]


class _Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.attention = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.table, self.head = nn.Embedding(20, 8), nn.Linear(8, 20)

    def forward(self, image, words):
        features = self.norm(self.conv(image)).relu().flatten(2).transpose(1, 2)
        return self.head(self.attention(features + self.table(words).mean(1, keepdim=True)))


def _build():
    gc.disable()  # in the child that traces: cycles would end where the number of objects says
    model = _Net().cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    scaler = torch.amp.GradScaler("cuda")

    def step():
        image, words = torch.randn(2, 3, 8, 8, device="cuda"), torch.randint(0, 20, (2, 5), device="cuda")
        with torch.autocast("cuda", dtype=torch.float16):
            out = model(image, words)
            loss = nn.functional.cross_entropy(out.flatten(0, 1).float(), words.repeat(1, 13)[:, :64].flatten())
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()

    return model, optimizer, step


def _in_order(events):
    """Frees that follow each other by their block: autocast lets go of its weights in the order of their addresses."""
    runs = [list(run) for _, run in itertools.groupby(events, lambda event: event.kind == Kind.FREE)]
    return [event for run in runs for event in (sorted(run) if run[0].kind == Kind.FREE else run)]


def test_a_trace_is_the_same_event_for_event_without_them():
    """Convolution, norms, attention, half precision with scaling and clipping, and AdamW: nothing is lost for speed."""

    def slow():
        Outcomes.of = lambda self, func, args, kwargs: func(*args, **kwargs)
        Outcomes.literal = lambda self, func, tensor: func(tensor)
        return trace(_build, Setting(steps=3))

    quick, asked = in_child(lambda: trace(_build, Setting(steps=3))), in_child(slow)
    assert _in_order(quick.events) == _in_order(asked.events)
    assert (quick.owners, quick.sites, quick.notes) == (asked.owners, asked.sites, asked.notes)
