"""What transformers' Trainer does not tell its callbacks, read from the stack: itself, and what it is doing.

An event names neither the Trainer nor its list of callbacks, there is none for the beginning of an evaluation, and none
for an exception. Names of transformers that are not documented (checked in 5.23): `CallbackHandler.callbacks` and
`call_event`, `Trainer.callback_handler`, and in `Trainer.evaluation_loop` the variables named below.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Any, final

import torch

from memguard.heap.containers import tensors_in
from memguard.heap.frames import read_locals

PACKAGE = "transformers"
_CONTAINERS = ("all_losses", "all_preds", "all_labels", "all_inputs")


@final
@dataclass(frozen=True, slots=True)
class Host:
    """The Trainer that calls a callback, held weakly, and the frame it runs in, by its number."""

    handler: weakref.ref[Any]
    trainer: weakref.ref[Any] | None
    frame: int

    @property
    def callbacks(self) -> list[Any]:
        """The Trainer's own list of callbacks: what is changed here is changed there."""
        handler = self.handler()
        found: list[Any] = handler.callbacks if handler is not None else []
        return found

    def puts_first(self, callback: Any, kind: type[Any]) -> bool:
        """Whether a callback is the first of its kind; if so it hears events before those that report."""
        callbacks = self.callbacks
        if callback not in callbacks:
            return True
        if next(other for other in callbacks if isinstance(other, kind)) is not callback:
            return False
        if callbacks.index(callback) > 1:  # the first one decides what the Trainer does next, and stays first
            callbacks.remove(callback)
            callbacks.insert(1, callback)
        return True

    @property
    def tensorboard_writer(self) -> Any:
        """The writer of the Trainer's own TensorBoard run, once it has one."""
        for callback in self.callbacks:
            if type(callback).__name__ == "TensorBoardCallback":
                return getattr(callback, "tb_writer", None)
        return None

    @property
    def wrapped_model(self) -> Any:
        """What the Trainer calls in training: its model, or DDP's or torch.compile's wrapper around it."""
        return getattr(self._trainer, "model_wrapped", None)

    @property
    def evaluates_several(self) -> bool:
        """Whether each evaluation goes through several datasets, and is told of as often."""
        return isinstance(getattr(self._trainer, "eval_dataset", None), dict)

    @property
    def _trainer(self) -> Any:
        return self.trainer() if self.trainer is not None else None

    @property
    def is_running(self) -> bool:
        """Whether the Trainer's loop is still on the stack; it leaves without a word when an exception ends it."""
        trainer = self._trainer
        if trainer is None:
            return False
        # A frame that is gone leaves its address to another one, such as the next Trainer's.
        return any(id(frame) == self.frame and _self_of(frame) is trainer for frame in _frames(sys._getframe(1)))


def find_host() -> Host | None:
    """The Trainer that is calling back now; None if something else calls."""
    handler = trainer = None
    outermost = 0
    for frame in _frames(sys._getframe(1)):
        caller = _self_of(frame)
        if handler is None:
            if isinstance(getattr(caller, "callbacks", None), list) and hasattr(caller, "call_event"):
                handler = caller
        elif getattr(caller, "callback_handler", None) is handler:
            trainer, outermost = caller, id(frame)
    if handler is None:
        return None
    return Host(weakref.ref(handler), weakref.ref(trainer) if trainer is not None else None, outermost)


def is_predicting() -> bool:
    """Whether the evaluation that runs now was asked for by `Trainer.predict`."""
    return any(frame.f_code.co_name == "predict" and _is_theirs(frame) for frame in _frames(sys._getframe(1)))


def kept_predictions(on_device: Callable[[torch.Tensor], bool]) -> int:
    """Bytes of what the evaluation that runs now keeps for `compute_metrics`: logits, labels, losses, inputs.

    Args:
        on_device: Whether a tensor counts.
    """
    for frame in _frames(sys._getframe(1)):
        if frame.f_code.co_name == "evaluation_loop" and _is_theirs(frame):
            variables = read_locals(frame)
            kept = [getattr(variables.get(name), "tensors", None) for name in _CONTAINERS]
            return sum(tensor.nbytes for tensor in tensors_in(kept) if on_device(tensor))
    return 0


def _self_of(frame: FrameType) -> Any:
    if not _is_theirs(frame) or frame.f_code.co_varnames[:1] != ("self",):
        return None
    return read_locals(frame).get("self")


def _is_theirs(frame: FrameType) -> bool:
    name = frame.f_globals.get("__name__")
    return type(name) is str and name.partition(".")[0] == PACKAGE


def _frames(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back
