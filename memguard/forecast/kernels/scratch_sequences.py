"""What recurrent cells and the CTC loss take, in the order in which they take it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memguard.forecast.kernels.scratch_parts import nbytes_of, take_reduction

if TYPE_CHECKING:
    from memguard.forecast.tracer import Tracer


def lstm_cell(tracer: Tracer, site: int, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
    """Its workspace before its states."""
    state, cell, workspace = out
    tracer.outputs((workspace, state, cell), site)


def gru_cell(tracer: Tracer, site: int, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
    """Its workspace before its state."""
    state, workspace = out
    tracer.outputs((workspace, state), site)


def gru_cell_backward(tracer: Tracer, site: int, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
    """Gradients of gates and state, then those of the biases, each a sum."""
    tracer.outputs(out[:3], site)
    for bias, gates in zip(out[3:], out[:2], strict=True):
        if bias is not None:
            tracer.outputs(bias, site)
            take_reduction(tracer, site, gates, [0])


def ctc_loss(tracer: Tracer, site: int, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
    """The lengths and offsets of the sequences go to the GPU."""
    tracer.outputs(out, site)
    tracer.take(site, *[8 * out[0].numel()] * 3)


def ctc_loss_backward(tracer: Tracer, site: int, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
    """The backward variables are as large as the forward ones."""
    tracer.outputs(out, site)
    tracer.take(site, nbytes_of(args[6]), *[8 * args[5].numel()] * 3)
