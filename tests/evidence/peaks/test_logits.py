"""Wide logits, the peak that their copies make, and the line that makes them."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from memguard.evidence.peaks.logits import LogitsProbe, fused_losses
from memguard.evidence.peaks.loss_logits import saved_by_slices, upcast_in
from memguard.integrations.script import run_script
from memguard.records.facts import LargeLogits
from memguard.records.stats import MemoryStats
from tests.evidence.loop import Loop, record_of, sees_saved_tensors
from tests.evidence.timelines import timeline_of

MIB = 1024**2


def test_wide_logits_whose_loss_sets_the_peak_are_measured() -> None:
    """How far the batch's peak lies above the end of the forward is told for wide outputs only."""
    model, x = nn.Linear(8, 5000), torch.randn(4, 8)
    reads: dict[str, Any] = {"read": lambda: MemoryStats(allocated_bytes=100, allocated_peak_bytes=120)}
    with Loop(model, kinds=[LogitsProbe], **reads) as loop:
        loop.record = record_of(allocated_peak_bytes=1120)
        for _ in loop.batches(3):
            model(x).sum().backward()
    fact = loop.of(LargeLogits)[0]
    assert (fact.width, fact.dtype, fact.extra_bytes, fact.peak_after_forward) == (5000, "float32", 1000, True)
    assert fact.float32_bytes == 4 * 5000 * 4


@pytest.mark.parametrize("lengths", [(6000, 6001, 6002, 6003), (6000, 6000, 6000, 6000)])
def test_wide_outputs_that_are_no_logits_are_left_alone(lengths: tuple[int, ...]) -> None:
    """A waveform is as wide as it is long: where that changes, or a convolution answers, nobody speaks of classes."""
    convolutional = len(set(lengths)) == 1
    model = nn.Conv1d(1, 1, 3, padding=1) if convolutional else nn.Tanh()
    reads: dict[str, Any] = {"read": lambda: MemoryStats(allocated_bytes=100, allocated_peak_bytes=120)}
    with Loop(model, kinds=[LogitsProbe], **reads) as loop:
        loop.record = record_of(allocated_peak_bytes=1120)
        for batch in loop.batches(4):
            model(torch.randn(2, 1, lengths[batch], requires_grad=True)).sum().backward()
    assert not loop.of(LargeLogits)


def event(action: str, address: int, size: float, line: int = 1, file: str = __file__) -> dict[str, Any]:
    frames = [
        {"filename": torch.__file__, "line": 5, "name": "linear"},
        {"filename": file, "line": line, "name": "step"},
    ]
    return {"action": action, "addr": address, "size": int(size * MIB), "frames": frames}


def test_losses_are_asked_for_until_some_had_no_wide_logits() -> None:
    """A loop whose losses are small is listened to no longer."""
    model = nn.Linear(8, 8)
    with Loop(model, kinds=[LogitsProbe]) as loop:
        asked = []
        for _ in loop.batches(20):
            asked.append(loop.probes.hears_losses)
            loop.probes.loss(model(torch.randn(2, 8)).sum())
    assert asked[0] and not asked[-1]


BATCH = [
    event("alloc", 1, 10, line=2),  # the logits
    event("alloc", 2, 19.5, line=3),  # the copy, a token short
    event("alloc", 3, 19.5, line=4),
    event("free_requested", 2, 19.5),
    event("alloc", 4, 19.5, line=5),
    event("alloc", 5, 8, line=5),  # a gradient
    event("free_requested", 4, 19.5),
]


def test_the_first_tensor_of_twice_the_logits_size_is_the_copy() -> None:
    """What is alive of its size at the peak is counted; a shift may have taken a token of it."""
    found = upcast_in(timeline_of(BATCH), 20 * MIB)
    assert found is not None and found.place is not None
    assert (found.place.line, found.by_user, found.bytes) == (3, True, 2 * int(19.5 * MIB))


def test_slices_lower_the_peak_to_what_else_is_there() -> None:
    """All that has the logits' size comes an eighth at a time; what is higher without them stays the peak."""
    activations, logits = event("alloc", 1, 6), [event("alloc", 2, 10), event("alloc", 3, 20), event("alloc", 4, 20)]
    gone = [event("free_requested", 4, 20), event("free_requested", 3, 20), event("free_requested", 2, 10)]
    slices = 50 * MIB // 8
    assert saved_by_slices(timeline_of([activations, *logits]), 10 * MIB, 20 * MIB) == 50 * MIB - slices
    later = [event("alloc", 5, 5), event("alloc", 6, 6)]
    assert saved_by_slices(timeline_of([activations, *logits, *gone, *later]), 10 * MIB, 20 * MIB) == 39 * MIB - slices


def test_what_is_installed_is_named() -> None:
    """Torch's own, with the option without which it makes all logits; the name exists."""
    named = [each.partition("(")[0] for each in fused_losses()]
    assert ("torch.nn.functional.linear_cross_entropy" in named) == hasattr(nn, "LinearCrossEntropyOptions")


@pytest.mark.parametrize(
    "trace",
    [
        [event("alloc", 1, 20), event("alloc", 2, 20), event("alloc", 3, 20)],  # made in float32
        [event("alloc", 1, 10), event("alloc", 2, 10), event("alloc", 3, 10)],  # all in half precision
        [event("alloc", 1, 10), *(event("alloc", 2 + i, 5) for i in range(4))],  # in slices
        [event("alloc", 1, 10), event("free_requested", 1, 10), event("alloc", 2, 20)],  # of something else
        [],
    ],
    ids=["float32", "half", "slices", "gone before", "nothing"],
)
def test_a_batch_without_a_copy_has_none(trace: list[dict[str, Any]]) -> None:
    """Logits in float32 from the beginning, none in float32, or never all at once."""
    assert upcast_in(timeline_of(trace), 20 * MIB) is None


def test_a_copy_that_a_library_makes_is_told_at_the_users_call_of_it() -> None:
    """It is not the user's own, which the caller may want to know."""
    trace = [event("alloc", 1, 10), event("alloc", 2, 20, line=7)]
    trace[1]["frames"].insert(1, {"filename": pytest.__file__, "line": 5, "name": "loss"})
    found = upcast_in(timeline_of(trace), 20 * MIB)
    assert found is not None and found.place is not None
    assert (found.place.line, found.by_user) == (7, False)


def test_logits_computed_again_by_a_backward_are_not_followed() -> None:
    """They are checkpointed, mostly in slices."""
    head, x = nn.Linear(8, 5000).bfloat16(), torch.randn(4, 8, dtype=torch.bfloat16, requires_grad=True)
    reads: dict[str, Any] = {"read": lambda: MemoryStats(allocated_bytes=100, allocated_peak_bytes=120)}
    with Loop(head, kinds=[LogitsProbe], **reads) as loop:
        loop.record = record_of(allocated_peak_bytes=1120)
        for _ in loop.batches(4):
            checkpoint(lambda h: head(h).float().log_softmax(-1).sum(), x, use_reentrant=False).backward()  # type: ignore[no-untyped-call]
    assert len(loop.of(LargeLogits)) == 0


SCRIPT = """
import torch
import torch.nn.functional as F
from torch import nn
V = 8000
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.head = nn.Embedding(V, 16), nn.Linear(16, V)
    def body(self, ids):
        h = self.emb(ids)
        return h * torch.rsqrt(h.float().pow(2).mean(-1, keepdim=True)).to(h.dtype)
    def forward(self, ids):
        logits = self.head(self.body(ids))
        {forward}
def loss_of(out, ids, width=V):
    {loss}
net = Net().to(torch.{dtype})
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(8):
    ids = torch.randint(V, (2, 33))
    {step}
    loss.backward()
    opt.step()
    opt.zero_grad()
"""
PLAIN = {
    "forward": "return logits",
    "loss": "return F.cross_entropy(out[:, :-1].flatten(0, 1), ids[:, 1:].flatten())",
    "dtype": "bfloat16",
    "step": "loss = loss_of(net(ids), ids)",
}
PROGRAMS: dict[str, tuple[dict[str, str], int | None]] = {
    "in the forward": ({"forward": "return logits.to(dtype=torch.float32)"}, 15),
    "beside a loss": (
        {"forward": "logits = logits.float(); return loss_of(logits, ids), logits", "step": "loss, _ = net(ids)"},
        15,
    ),
    "in the loss, called around the model": ({"loss": "out = out.float(); " + PLAIN["loss"]}, 17),
    "in the loop": ({"step": "loss = loss_of(net(ids).float(), ids)"}, 22),
    "softmax of another type": (
        {"loss": "return -F.log_softmax(out, -1, dtype=torch.float32)[:, :-1].flatten(0, 1)[:, ids[0, 0]].mean()"},
        17,
    ),
    "under autocast, by the loss itself": (
        {
            "dtype": "float32",
            "step": "with torch.autocast('cpu', torch.bfloat16): out = net(ids); loss = loss_of(out, ids)",
        },
        17,
    ),
    "before a loss written out": (
        {
            "forward": "out = logits.float(); return (out.logsumexp(-1) - out[..., 0]).mean()",
            "step": "loss = net(ids)",
        },
        15,
    ),
    "of pairs, beside passes without gradients": (
        {
            "loss": "out = out.float(); " + PLAIN["loss"],
            "step": "for _ in range(2): torch.no_grad()(net)(ids)\n"
            "    loss = loss_of(net(ids), ids) - loss_of(net(ids.flip(1)), ids)",
        },
        17,
    ),
    "behind a head that is no module": (
        {"step": "out = F.linear(net.emb(ids), net.head.weight); loss = loss_of(out.float(), ids)"},
        22,
    ),
    "in a loss that has the head in it, under autocast": (
        {
            "dtype": "float32",
            "loss": "out = out @ net.head.weight.t(); " + PLAIN["loss"],
            "step": "with torch.autocast('cpu', torch.bfloat16): loss = loss_of(net.emb(ids), ids)",
        },
        17,
    ),
    "with the classes in the middle": (
        {"step": "out = net.emb(ids) @ net.head.weight.t(); loss = F.cross_entropy(out.float().transpose(1, 2), ids)"},
        22,
    ),
    "in slices of a head that is no module, each with its backward": (
        {
            "step": "h = net.emb(ids).flatten(0, 1); part = h.detach().requires_grad_()\n"
            "    for a, b in zip(part.split(8), ids.flatten().split(8)):\n"
            "        F.cross_entropy((a @ net.head.weight.t()).float(), b).backward()\n"
            "    loss = (h * part.grad).sum()"
        },
        None,
    ),
    "nowhere": ({}, None),
    "of the last token": ({"step": "out = net(ids)[:, -1].float(); loss = F.cross_entropy(out, ids[:, 0])"}, None),
    "a model in float32": ({"dtype": "float32"}, None),
    "in slices": (
        {
            "loss": "parts = zip(out.flatten(0, 1).split(8), ids.flatten().split(8)); "
            "return sum(F.cross_entropy(a.float(), b) for a, b in parts)"
        },
        None,
    ),
}


IN_THE_GRAPH = {
    "before a loss written out",
    "behind a head that is no module",
    "in a loss that has the head in it, under autocast",
    "with the classes in the middle",
}
"""Where no module's answer has the logits: a torch that does not show what a graph saved does not show them."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[sees_saved_tensors] if name in IN_THE_GRAPH else []) for name in PROGRAMS]
)
def test_a_program_is_told_of_the_line_that_copies(name: str, tmp_path: Path) -> None:
    """In whatever function it stands; a program that copies nothing of this size gets no word."""
    changes, line = PROGRAMS[name]
    script = tmp_path / "lm.py"
    script.write_text(SCRIPT.format(**{**PLAIN, **changes}))
    gc.collect()  # what the program before left behind is none of this one's peak
    options = {"device": "virtual:64MiB", "logdir": str(tmp_path), "validation": "warn"}
    code, (summary,) = run_script(str(script), [], options, module=False)
    assert code == 0
    assert [f.line for f in summary.findings if f.code == "MG310"] == ([line] if line else [])
