"""Recurrent layers, which keep what PyTorch's own kernels keep, and the packed sequences that they are given.

How many numbers those hold depends on the lengths, which are on the host and often known. Lengths whose values the
trace does not have count as full: the batch as if nothing were padded.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

if TYPE_CHECKING:
    from memguard.forecast.tracer import Tracer


def pack_kernel(tracer: Tracer, site: int, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The packed numbers, and a real tensor that says how many sequences each step has."""
    tensor, lengths, batch_first = args
    samples, steps = tensor.shape[:2] if batch_first else (tensor.shape[1], tensor.shape[0])
    known = tracer.original_of(lengths)
    with _disable_current_modes():
        values = known.tolist() if known is not None else [steps] * samples
        if known is None:
            tracer.note("lengths of packed sequences are not known: counted as if nothing were padded")
        sizes = torch.tensor([sum(length > step for length in values) for step in range(max(values))])
    tracer.know(sizes)
    return tensor.new_empty((sum(values), *tensor.shape[2:])), sizes


def install_padding() -> None:
    """Let packed sequences be padded again: PyTorch writes the lengths into memory that fakes do not have."""
    functions: Any = torch._VF
    functions._pad_packed_sequence = _pad


def _pad(data: Tensor, sizes: Tensor, batch_first: bool, value: float, total: int) -> tuple[Tensor, Tensor]:
    with _disable_current_modes():
        counts = sizes.tolist()
        lengths = torch.tensor([sum(count > sample for count in counts) for sample in range(counts[0])])
    steps = max(total, len(counts))
    out = data.new_full((steps, counts[0], *data.shape[1:]), value)
    done = begin = 0
    for step, count in enumerate([*counts[1:], 0]):
        if count != counts[begin]:
            rows = (step + 1 - begin) * counts[begin]
            piece = data[done : done + rows].view(step + 1 - begin, counts[begin], *data.shape[1:])
            out[begin : step + 1, : counts[begin]] = piece
            done, begin = done + rows, step + 1
    return (out.transpose(0, 1) if batch_first else out), lengths


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
