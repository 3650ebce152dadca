"""Recurrent layers: traced as PyTorch's own kernels, though cuDNN runs them on a GPU. What they keep is counted.

cuDNN's reserve for the backward holds the same gates and states; its size is known to cuDNN only.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from memguard.forecast.tracer import Tracer

_LAYERS = ("lstm", "gru", "rnn_tanh", "rnn_relu")


def count_recurrent_layers(tracer: Tracer) -> None:
    """From here on the tracer knows what recurrent layers keep. Changes the process for good."""
    torch.backends.cudnn.is_acceptable = lambda tensor: False  # or layers would ask a library that is not there
    functions: Any = torch._VF
    for name in _LAYERS:
        function = getattr(functions, name, None)
        if function is not None:
            setattr(functions, name, _counted(tracer, function))


def _counted(tracer: Tracer, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def layer(*args: Any, **kwargs: Any) -> Any:
        before, on_gpu = tracer.allocated_bytes, torch.backends.cudnn.enabled
        torch._C._set_cudnn_enabled(False)  # or a CUDA build would ask a driver, which need not be there
        try:
            found = function(*args, **kwargs)
        finally:
            torch._C._set_cudnn_enabled(on_gpu)
        if on_gpu and torch.is_grad_enabled():
            tracer.recurrent_bytes += max(tracer.allocated_bytes - before, 0)
            tracer.note(
                "recurrent layers are counted as PyTorch's own kernels keep them; on a GPU cuDNN runs them, and "
                "keeps a reserve of about the same size"
            )
        return found

    return layer
