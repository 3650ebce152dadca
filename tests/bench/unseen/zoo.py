"""Models of 21 kinds, each trained in three precisions with optimizers that change from one to the next."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from unseen import zoo_images, zoo_mixed, zoo_sequences, zoo_sets

CUDA = "cuda"
OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, weight_decay=1e-4),
    "adamw": lambda p: torch.optim.AdamW(p),
    "fused": lambda p: torch.optim.AdamW(p, fused=True),
    "adamax": lambda p: torch.optim.Adamax(p),
    "nadam": lambda p: torch.optim.NAdam(p),
    "rmsprop": lambda p: torch.optim.RMSprop(p, momentum=0.9),
    "adadelta": lambda p: torch.optim.Adadelta(p),
    "amsgrad": lambda p: torch.optim.Adam(p, amsgrad=True),
    "radam": lambda p: torch.optim.RAdam(p),
    "asgd": lambda p: torch.optim.ASGD(p),
    "rprop": lambda p: torch.optim.Rprop(p),
    "nesterov": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, nesterov=True),
}
PLAIN_SGD: Callable[[Any], torch.optim.Optimizer] = lambda p: torch.optim.SGD(p, 0.1)  # noqa: E731 - as those above


def _real(*shape: int) -> Tensor:
    return torch.randn(*shape, device=CUDA)


def _whole(below: int, *shape: int) -> Tensor:
    return torch.randint(0, below, shape, device=CUDA)


def _words(out: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(out.reshape(-1, out.shape[-1]).float(), target.reshape(-1))


def _next_words(model: Any, x: Tensor) -> Tensor:
    return F.cross_entropy(model(x)[:, :-1].reshape(-1, 8000), x[:, 1:].reshape(-1))


def _set_loss(model: Any, x: Tensor, y: Tensor, boxes: Tensor) -> Tensor:
    classes, found = model(x)
    far = torch.cdist(found.float(), boxes, p=1).diagonal(dim1=-2, dim2=-1).mean()
    kinds = F.cross_entropy(classes.transpose(1, 2), y, weight=torch.ones(21, device=CUDA))
    return kinds + 5 * F.l1_loss(found, boxes) + far


def _pair_loss(model: Any, x: Tensor, t: Tensor) -> Tensor:
    logits = model(x, t)
    here = torch.arange(len(logits), device=CUDA)
    return (F.cross_entropy(logits, here) + F.cross_entropy(logits.t(), here)) / 2


def _variational_loss(model: Any, x: Tensor) -> Tensor:
    out, mean, spread = model(x)
    return F.mse_loss(out, x, reduction="sum") - 0.5 * torch.sum(1 + spread - mean.pow(2) - spread.exp())


def _speech_loss(model: Any, x: Tensor, y: Tensor) -> Tensor:
    chances = F.log_softmax(model(x), -1).transpose(0, 1)
    samples = len(x)
    return F.ctc_loss(chances.float(), y, torch.full((samples,), chances.shape[0]), torch.full((samples,), 20))


def _tables(batch: int) -> tuple[Any, ...]:
    return _real(64 * batch, 13), [_whole(5000, 64 * batch, 4) for _ in range(8)], torch.rand(64 * batch, device=CUDA)


def _classes(model: Any, x: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(model(x), y)


def _click_loss(model: Any, x: Tensor, ids: Any, y: Tensor) -> Tensor:
    return F.binary_cross_entropy_with_logits(model(x, ids), y)


_S, _I, _M, _T = zoo_sequences, zoo_images, zoo_mixed, zoo_sets
KINDS: dict[str, tuple[Callable[[], nn.Module], Callable[[int], Any], Callable[..., Tensor]]] = {
    "state space": (_S.StateSpace, lambda b: (_whole(1000, b, 48),), lambda m, x: _words(m(x), x)),
    "sorted experts": (_S.SortedExperts, lambda b: (_whole(2000, b, 128),), lambda m, x: _words(m(x), x)),
    "shifted windows": (
        _I.ShiftedWindows,
        lambda b: (_real(b, 3, 112, 112), _whole(100, b)),
        lambda m, x, y: F.cross_entropy(m(x), y, label_smoothing=0.1),
    ),
    "set detector": (_M.SetDetector, lambda b: (_real(b, 3, 128, 128), _whole(21, b, 50), _real(b, 50, 4)), _set_loss),
    "image and text": (_M.ImageText, lambda b: (_real(b, 3, 96, 96), _whole(5000, b, 32)), _pair_loss),
    "denoiser": (
        _M.Denoiser,
        lambda b: (_real(b, 3, 32, 32), _whole(1000, b)),
        lambda m, x, t: F.mse_loss(m(x + torch.randn_like(x), t), torch.randn_like(x)),
    ),
    "dilated audio": (_M.DilatedAudio, lambda b: (_real(b, 1, 2000), _whole(256, b, 2000)), _classes),
    "message passing": (
        _T.MessagePassing,
        lambda b: (_real(100 * b, 16), _whole(100 * b, 2, 800 * b), _whole(32, 100 * b), _real(32, 1)),
        lambda m, x, edges, group, y: F.huber_loss(m(x, edges, group), y),
    ),
    "relative bias": (_S.RelativeBias, lambda b: (_whole(4000, b, 128),), lambda m, x: _words(m(x), x)),
    "grouped decoder": (_S.GroupedDecoder, lambda b: (_whole(8000, b, 256),), _next_words),
    "grouped decoder, checkpointed": (
        lambda: _S.GroupedDecoder(ck=True),
        lambda b: (_whole(8000, b, 256),),
        lambda m, x: F.cross_entropy(m(x)[:, :-1].reshape(-1, 8000).float(), x[:, 1:].reshape(-1)),
    ),
    "recommender": (lambda: _T.Recommender(False), _tables, _click_loss),
    "recommender, sparse": (_T.Recommender, _tables, _click_loss),
    "autoencoder": (_I.Autoencoder, lambda b: (torch.rand(b, 3, 64, 64, device=CUDA),), _variational_loss),
    "attentive translator": (
        _S.AttentiveTranslator,
        lambda b: (_whole(2000, b, 30), _whole(2000, b, 20)),
        lambda m, a, b: F.cross_entropy(m(a, b).reshape(-1, 2000), b.reshape(-1), ignore_index=0),
    ),
    "inverted bottlenecks": (_I.InvertedBottlenecks, lambda b: (_real(b, 3, 96, 96), _whole(100, b)), _classes),
    "densely connected": (_I.DenselyConnected, lambda b: (_real(b, 3, 64, 64), _whole(100, b)), _classes),
    "radiance field": (
        _I.RadianceField,
        lambda b: (_real(64 * b, 32, 3), _real(64 * b, 3)),
        lambda m, x, y: F.mse_loss(m(x), y),
    ),
    "point cloud": (_T.PointCloud, lambda b: (_real(b, 3, 1024), _whole(40, b)), _classes),
    "speech encoder": (_M.SpeechEncoder, lambda b: (_real(b, 8000), _whole(31, b, 20)), _speech_loss),
}


def program(kind: str, optimizer: Any, precision: str, batch: int, *, clip: bool, last: bool) -> Callable[[], Any]:
    """A function that builds model, optimizer and step."""

    def build() -> tuple[Any, Any, Callable[[], None]]:
        torch.backends.cuda.enable_cudnn_sdp(False)
        torch.backends.cudnn.enabled = kind != "attentive translator"  # the null GPU has no recurrent cuDNN
        make, data, loss_of = KINDS[kind]
        layout = torch.channels_last if last else torch.preserve_format
        model = make().to(CUDA, memory_format=layout)
        dtype = torch.float16 if precision == "fp16" else torch.bfloat16
        scaler = torch.amp.GradScaler("cuda", enabled=precision == "fp16")
        chosen = optimizer(model.parameters())

        def step() -> None:
            given = [x.to(memory_format=layout) if last and x.dim() == 4 else x for x in data(batch)]
            with torch.autocast("cuda", dtype=dtype, enabled=precision != "fp32"):
                loss = loss_of(model, *given)
            scaler.scale(loss).backward()
            if clip:
                scaler.unscale_(chosen)
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(chosen)
            scaler.update()
            chosen.zero_grad()

        return model, chosen, step

    return build


def programs() -> dict[str, Callable[[], Any]]:
    """All of them by name."""
    found = {}
    turn = itertools.cycle(OPTIMIZERS)
    for kind in KINDS:
        for precision, batch, clip in (("fp32", 4, False), ("bf16 autocast", 16, True), ("fp16", 8, False)):
            name, sparse = next(turn), kind.endswith("sparse")
            if sparse and precision == "fp16":
                continue  # the scaler does not unscale sparse gradients
            chosen = PLAIN_SGD if sparse else OPTIMIZERS[name]
            title = f"{kind}, {'plain sgd' if sparse else name}, {precision}"
            found[title] = program(kind, chosen, precision, batch, clip=clip and not sparse, last=False)
    for kind in ("denoiser", "inverted bottlenecks", "autoencoder", "densely connected"):
        for name, precision in (("adamw", "bf16 autocast"), ("sgd", "fp32")):
            title = f"{kind}, {name}, {precision}, channels last"
            found[title] = program(kind, OPTIMIZERS[name], precision, 8, clip=False, last=True)
    return found
