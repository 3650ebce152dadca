"""PyTorch's own modules of attention and recurrence, forwards and backwards; recurrence without cuDNN."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

CUDA = "cuda"
_MODULES: dict[str, tuple[Callable[[], nn.Module], Callable[[Any, Tensor], Tensor], tuple[int, ...]]] = {
    "mha": (
        lambda: nn.MultiheadAttention(256, 8, batch_first=True, dropout=0.1),
        lambda m, x: m(x, x, x)[0],
        (16, 64, 256),
    ),
    "mha_no_weights": (
        lambda: nn.MultiheadAttention(256, 8),
        lambda m, x: m(x, x, x, need_weights=False)[0],
        (64, 16, 256),
    ),
    "lstm": (lambda: nn.LSTM(64, 128, 2, batch_first=True, dropout=0.1), lambda m, x: m(x)[0], (16, 32, 64)),
    "lstm_bidirectional": (lambda: nn.LSTM(64, 128, 2, bidirectional=True), lambda m, x: m(x)[0], (32, 16, 64)),
    "lstm_projected": (lambda: nn.LSTM(64, 128, proj_size=32), lambda m, x: m(x)[0], (32, 16, 64)),
    "gru": (lambda: nn.GRU(64, 128, 2, batch_first=True), lambda m, x: m(x)[0], (16, 32, 64)),
    "rnn": (lambda: nn.RNN(64, 128, 2), lambda m, x: m(x)[0], (32, 16, 64)),
    "lstm_cell": (lambda: nn.LSTMCell(64, 128), lambda m, x: m(x)[0], (32, 64)),
    "gru_cell": (lambda: nn.GRUCell(64, 128), lambda m, x: m(x), (32, 64)),
    "encoder_layer": (
        lambda: nn.TransformerEncoderLayer(256, 8, 512, batch_first=True),
        lambda m, x: m(x),
        (16, 64, 256),
    ),
    "decoder_layer": (
        lambda: nn.TransformerDecoderLayer(256, 8, 512, batch_first=True, norm_first=True),
        lambda m, x: m(x, x),
        (16, 64, 256),
    ),
}


def _program(name: str, precision: str) -> tuple[Any, Any, Callable[[], None]]:
    torch.backends.cuda.enable_cudnn_sdp(False)
    torch.backends.cudnn.enabled = False
    make, call, shape = _MODULES[name]
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    model = make().to(CUDA, dtype)
    x = torch.zeros(shape, device=CUDA, dtype=dtype, requires_grad=True)

    def step() -> None:
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=precision == "amp"):
            out = call(model, x)
        out.backward(torch.ones_like(out))
        for tensor in (x, *model.parameters()):
            tensor.grad = None

    return model, None, step


def programs() -> dict[str, Callable[[], Any]]:
    """Each module in each precision."""
    return {
        f"{name}, {precision}": lambda n=name, p=precision: _program(n, p)
        for name in _MODULES
        for precision in ("fp32", "amp", "bf16")
    }
