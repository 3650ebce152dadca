"""Packed sequences: how many numbers they hold depends on the lengths, which are on the host and often known.

Lengths whose values the trace does not have count as full: the batch as if nothing were padded.
"""

from __future__ import annotations

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
