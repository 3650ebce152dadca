"""Steps of single operators as Liger-Kernel's benchmarks measure them, in eager PyTorch and written anew.

Each takes a row's ``x`` and its settings and returns the step whose peak of allocated memory was published. What the
benchmarks keep on the GPU beside it, such as the weights of their own kernel, is kept here too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Step = Callable[[], object]
Settings = dict[str, Any]
CUDA = "cuda"


def dtype_of(settings: Settings) -> torch.dtype:
    """The type that a row names, fp32 where it names none."""
    return getattr(torch, settings.get("dtype", "torch.float32").removeprefix("torch."))


def leaf(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """A tensor that asks for a gradient."""
    return torch.randn(*shape, device=CUDA, dtype=dtype, requires_grad=True)


@final
@dataclass(frozen=True, slots=True)
class Repeated:
    """Forward and backward; gradients add up, as nothing clears them."""

    forward: Callable[[], Tensor]
    gradient: Tensor | None = None
    kept: bool = True

    def __call__(self) -> Tensor:
        result = self.forward()
        result.backward(self.gradient, retain_graph=self.kept)
        return result


def cross_entropy(x: int, settings: Settings) -> Step:
    """Logits of many classes."""
    rows = settings["B"] * settings["T"]
    logits, target = leaf(rows, x), torch.randint(x, (rows,), device=CUDA)
    return Repeated(lambda: F.cross_entropy(logits, target), kept=False)


def fused_linear_cross_entropy(x: int, settings: Settings) -> Step:
    """A language model's head and its loss, beside the weights of a second one."""
    hidden, classes, dtype = settings["H"], settings["V"], dtype_of(settings)
    head, other = (nn.Linear(hidden, classes, bias=False, dtype=dtype, device=CUDA) for _ in range(2))
    tokens, target = leaf(x, hidden, dtype=dtype), torch.randint(classes, (x,), device=CUDA)

    def step() -> None:
        F.cross_entropy(head(tokens), target).backward()
        assert other is not None

    return step


def layer_norm(x: int, settings: Settings) -> Step:
    """Rows of one width."""
    layers = [nn.LayerNorm(x, eps=settings["eps"]).to(CUDA) for _ in range(2)]
    tensor = leaf(settings["M"], x, dtype=dtype_of(settings))
    return Repeated(lambda: layers[0](tensor), torch.randn_like(tensor))


class _RMSNorm(nn.Module):
    """Written out in fp32, as Llama's."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        dtype = x.dtype
        x = x.to(torch.float32)
        variance = x.pow(2).mean(-1, keepdim=True)
        x = x * torch.rsqrt(variance + self.eps)
        return self.weight * x.to(dtype)


def rms_norm(x: int, settings: Settings) -> Step:
    """With a weight in fp32, so that the output is too."""
    layers = [_RMSNorm(x, settings["eps"]).to(CUDA) for _ in range(2)]
    tensor = leaf(settings["M"], x, dtype=dtype_of(settings))
    return Repeated(lambda: layers[0](tensor), torch.randn_like(tensor))


def swiglu(x: int, settings: Settings) -> Step:
    """A gated perceptron of a language model."""
    dtype, hidden, inner = dtype_of(settings), settings["hidden_size"], settings["intermediate_size"]
    tokens = leaf(settings["B"], x, hidden, dtype=dtype)
    gate, up = (nn.Linear(hidden, inner, bias=False, dtype=dtype, device=CUDA) for _ in range(2))
    down = nn.Linear(inner, hidden, bias=False, dtype=dtype, device=CUDA)

    def step() -> None:
        out = down(F.silu(gate(tokens)) * up(tokens))
        out.backward(torch.randn_like(out), retain_graph=True)

    return step


def kl_div(x: int, settings: Settings) -> Step:
    """Of probabilities that were made before, with their graph."""
    rows = settings["B"] * settings["T"]
    logs = leaf(rows, x).log_softmax(dim=-1)
    target = torch.randn(rows, x, device=CUDA).softmax(dim=-1)
    return Repeated(lambda: F.kl_div(logs, target, reduction="batchmean"))


def _divergence(first: Tensor, second: Tensor, reduce: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """Jensen and Shannon's, of two logarithms in fp32."""
    second, first = second.to(torch.float), first.to(torch.float)
    mean = torch.lerp(torch.exp(second), torch.exp(first), 0.5)
    return 0.5 * reduce(torch.log(mean), second) + 0.5 * reduce(torch.log(mean), first)


def _mean_by_batch(first: Tensor, second: Tensor) -> Tensor:
    return F.kl_div(first, second, reduction="batchmean", log_target=True)


def jsd(x: int, settings: Settings) -> Step:
    """The divergence of two distributions over a vocabulary; newer benchmarks sum up each row by itself."""
    by_rows = "vocab_size" in settings
    rows, classes = (x, settings["vocab_size"]) if by_rows else (settings["B"] * settings["T"], x)
    first = leaf(rows, classes).log_softmax(dim=-1)
    second = torch.randn(rows, classes, device=CUDA).log_softmax(dim=-1)

    def forward() -> Tensor:
        if not by_rows:
            return _divergence(first, second, _mean_by_batch)
        loss = _divergence(first, second, lambda a, b: F.kl_div(a, b, reduction="none", log_target=True).sum(dim=-1))
        return (loss / rows).sum()

    return Repeated(forward)


def fused_linear_jsd(x: int, settings: Settings) -> Step:
    """A student's head beside its teacher's; both have the weights of a second pair."""
    hidden, classes, dtype = settings["H"], settings["V"], dtype_of(settings)
    student, teacher = (nn.Linear(hidden, classes, bias=False, dtype=dtype, device=CUDA) for _ in range(2))
    seen = leaf(x, hidden, dtype=dtype)
    taught = torch.rand(x, hidden, dtype=dtype, device=CUDA)

    def forward() -> Tensor:
        ours, theirs = student(seen), teacher(taught)
        first = torch.log_softmax(ours / 1.0, dim=-1)
        second = torch.log_softmax(theirs / 1.0, dim=-1)
        return _divergence(first, second, _mean_by_batch).to(dtype)

    return Repeated(forward, kept=False)


def relu_squared(x: int, settings: Settings) -> Step:
    """Of a vector as long as the row says."""
    tensor = leaf(x, dtype=dtype_of(settings))

    def step() -> None:
        out = torch.square(F.relu(tensor))
        out.backward(torch.ones_like(out), retain_graph=True)

    return step


def llama4_rope(x: int, settings: Settings) -> Step:
    """Rotary positions as complex numbers."""
    dtype, heads, shared = dtype_of(settings), settings["num_q_heads"], settings["num_kv_heads"]
    length = settings.get("seq_len", x)
    size = settings.get("hidden_size", x) // heads
    query, key = leaf(1, length, heads, size, dtype=dtype), leaf(1, length, shared, size, dtype=dtype)
    gradients = torch.randn_like(query), torch.randn_like(key)
    powers = 1.0 / (10000.0 ** (torch.arange(0, size, 2, device=CUDA).float() / size))
    places = torch.arange(length, device=CUDA).unsqueeze(0)
    angles = (powers[None, :, None] @ places[:, None, :].float()).transpose(1, 2)
    turns = torch.polar(torch.ones_like(angles), angles)

    def step() -> None:
        first = torch.view_as_complex(query.float().reshape(*query.shape[:-1], -1, 2))
        second = torch.view_as_complex(key.float().reshape(*key.shape[:-1], -1, 2))
        one = torch.view_as_real(first * turns[:, :, None, :]).flatten(3)
        two = torch.view_as_real(second * turns[:, :, None, :]).flatten(3)
        outs = one.type_as(query), two.type_as(key)
        del first, second, one, two
        torch.autograd.grad(outs, (query, key), gradients, allow_unused=True, retain_graph=True)
        assert places is not None

    return step


def sparsemax(x: int, settings: Settings) -> Step:
    """By sorting, in many small operators."""
    tensor = leaf(settings["B"] * settings["T"], x, dtype=dtype_of(settings))
    gradient = torch.randn_like(tensor)

    def step() -> None:
        ordered, _ = torch.sort(tensor, dim=-1, descending=True)
        sums = torch.cumsum(ordered, dim=-1)
        places = torch.arange(1, x + 1, device=CUDA, dtype=tensor.dtype).view(1, x)
        bound = 1 + places * ordered
        support = bound > sums
        count = support.sum(dim=-1, keepdim=True).clamp(min=1)
        total = (ordered * support).sum(dim=-1, keepdim=True)
        threshold = (total - 1) / count
        out = torch.clamp(tensor - threshold, min=0)
        del ordered, sums, places, bound, support, count, total, threshold
        out.backward(gradient, retain_graph=True)

    return step


def _picked(logits: Tensor, target: Tensor, ignored: int) -> Tensor:
    """The mean logarithm of what was picked, for each sequence."""
    mask = target != ignored
    target = torch.where(target == ignored, 0, target)
    each = torch.gather(logits.log_softmax(-1), dim=2, index=target.unsqueeze(2)).squeeze(2)
    return (each * mask).sum(-1) / mask.sum(-1)


def fused_linear_simpo_loss(x: int, settings: Settings) -> Step:
    """Preferred and rejected sequences in one batch."""
    hidden, classes, dtype, length = settings["H"], settings["V"], dtype_of(settings), settings["T"]
    heads = [nn.Linear(hidden, classes, bias=False, dtype=dtype, device=CUDA) for _ in range(2)]
    tokens, target = leaf(x, length, hidden, dtype=dtype), torch.randint(classes, (x, length), device=CUDA)

    def losses() -> tuple[Tensor, ...]:
        logits = (tokens @ heads[0].weight.t()).float()
        half = x // 2
        nll = F.cross_entropy(logits[:half].view(-1, classes), target[:half].view(-1))
        logs = _picked(logits, target, -100)
        chosen, rejected = logs[:half], logs[half:]
        loss = nll - F.logsigmoid(0.1 * (chosen - rejected) - 0.5).mean()
        return loss, logits[:half].detach().mean(), logits[half:].detach().mean()

    def step() -> None:
        losses()[0].backward()

    return step


def kto_loss(x: int, settings: Settings) -> Step:
    """Desired and undesired sequences, beside a reference."""
    hidden, classes, dtype, length = settings["H"], settings["V"], dtype_of(settings), settings["T"]
    ours, theirs, *others = (nn.Linear(hidden, classes, dtype=dtype, device=CUDA) for _ in range(4))
    tokens, seen = (torch.randn(x, length, hidden, device=CUDA, dtype=dtype) for _ in range(2))
    target = torch.randint(classes, (x, length), device=CUDA)
    half = x // 2

    def forward() -> tuple[Tensor, Tensor, Tensor]:
        outputs = tokens @ ours.weight.t()
        outputs = outputs + ours.bias
        logits = outputs.float()
        return _picked(logits, target, 42), logits[:half].clone(), logits[half:].clone()

    def reference() -> Tensor:
        with torch.no_grad():
            outputs = seen @ theirs.weight.t()
            outputs = outputs + theirs.bias
            return _picked(outputs, target, 42)

    def losses() -> tuple[Tensor, ...]:
        logs, chosen, rejected = forward()
        loss = (1 - torch.sigmoid(0.1 * (logs - reference()))).mean()
        return loss, chosen.detach().sum(), rejected.detach().sum()

    def step() -> None:
        losses()[0].backward()
        assert others

    return step


def _distilled(x: int, settings: Settings, soft: Callable[[Tensor, Tensor], Tensor]) -> Step:
    """A student of half the width learns from its teacher's logits."""
    hidden, classes, dtype = settings["H"], settings["V"], dtype_of(settings)
    pairs = [
        (
            nn.Linear(hidden // 2, classes, bias=False, dtype=dtype, device=CUDA),
            nn.Linear(hidden, classes, bias=False, dtype=dtype, device=CUDA),
        )
        for _ in range(2)
    ]
    student, teacher = pairs[0]
    source = torch.rand(x, hidden // 2, device=CUDA, dtype=dtype)
    other, seen = (source.detach().clone().requires_grad_(True) for _ in range(2))
    taught = torch.rand(x, hidden, device=CUDA, dtype=dtype)
    target = torch.randint(classes, (x,), device=CUDA)

    def heads() -> tuple[Tensor, Tensor, Tensor]:
        outputs = seen @ student.weight.t()
        with torch.no_grad():
            theirs = taught @ teacher.weight.t()
        ours, known = outputs.float(), theirs.float()
        return ours, known, F.cross_entropy(ours, target)

    def forward() -> Tensor:
        ours, known, hard = heads()
        return 0.5 * hard + 0.5 * soft(ours, known)

    def step() -> None:
        forward().backward()
        assert pairs and other is not None and source is not None

    return step


def distill_jsd_loss(x: int, settings: Settings) -> Step:
    """By the divergence of both distributions, in steps that each keep a result."""

    def soft(ours: Tensor, known: Tensor) -> Tensor:
        ours, known = ours / 1.0, known / 1.0
        first, second = F.softmax(ours, dim=-1), F.softmax(known, dim=-1)
        mean = torch.log((first + second) / 2)
        one, two = (
            F.kl_div(mean, torch.log(shares), reduction="batchmean", log_target=True) for shares in (first, second)
        )
        return ((one + two) / 2).mean()

    return _distilled(x, settings, soft)


def distill_cosine_loss(x: int, settings: Settings) -> Step:
    """By the angle between both."""

    def soft(ours: Tensor, known: Tensor) -> Tensor:
        ours /= 1.0
        known /= 1.0
        first, second = F.normalize(ours, p=2, dim=-1), F.normalize(known, p=2, dim=-1)
        return (1 - F.cosine_similarity(first, second, dim=-1)).mean()

    return _distilled(x, settings, soft)


def embedding(x: int, settings: Settings) -> Step:
    """A table looked up, beside a second one; also compiled."""
    tables = [nn.Embedding(x, settings["D"]).to(CUDA, dtype_of(settings)) for _ in range(2)]
    look_up = torch.compile(tables[0]) if settings.get("compiled") else tables[0]
    tokens = torch.randint(0, x, (settings["B"], settings["T"]), device=CUDA)

    def step() -> None:
        out = look_up(tokens)
        out.backward(torch.randn_like(out))
        assert tables

    return step


STEPS: dict[str, Callable[[int, Settings], Step]] = {
    function.__name__: function
    for function in (
        cross_entropy,
        distill_cosine_loss,
        distill_jsd_loss,
        embedding,
        fused_linear_cross_entropy,
        fused_linear_jsd,
        fused_linear_simpo_loss,
        jsd,
        kl_div,
        kto_loss,
        layer_norm,
        llama4_rope,
        relu_squared,
        rms_norm,
        sparsemax,
        swiglu,
    )
}
