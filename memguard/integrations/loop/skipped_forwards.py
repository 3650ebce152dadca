"""Forwards in batches that are not sampled: ordinary ones are skipped."""

from __future__ import annotations

from sys import exc_info
from threading import get_ident
from typing import TYPE_CHECKING, final

from torch import nn

if TYPE_CHECKING:
    from memguard.integrations.session import Session


@final
class SkippedForwards:
    """Tells the hooks on root models which forwards need no word.

    Args:
        session: Its validation guard knows which models are trained, its watch for out-of-memory errors hears of calls.

    Attributes:
        is_on: Whether a training batch is open that nobody looks at, and nothing out of the ordinary happened in it;
            `Session` says so at its start.
        under_way: Numbers of the models whose forwards were passed over and have not ended.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self.is_on = False
        self.under_way: list[int] = []
        self._trained: set[int] = set()
        self._thread = get_ident()

    def batch_end(self) -> None:
        """A batch is over."""
        self.is_on = False
        self.under_way.clear()  # an interrupt leaves a forward without a word to its hooks

    def move_here(self) -> None:
        """The calling thread is the one that trains."""
        self._thread = get_ident()

    def add_model(self) -> None:
        """There is one more model: of those that are gone it may have the number of one."""
        self._trained.clear()

    def passes(self, model: nn.Module) -> bool:
        """Whether a forward that begins needs no `Session.forward_start`: an ordinary one of a calm batch.

        Ordinary is a forward in training mode, on the thread that trains, while no error is being handled, of a model
        that was seen to be trained. Its end need not be told either: `passed` knows.
        """
        if not (self.is_on and model.training) or exc_info()[1] is not None or get_ident() != self._thread:
            return False
        if not self.is_trained(model):
            return False
        number, session = id(model), self._session
        session.oom.called(number, session.recorder.batch, training=True)
        self.under_way.append(number)
        return True

    def is_trained(self, model: nn.Module) -> bool:
        """Whether the validation guard has nothing to learn from this model's forwards in training mode."""
        if id(model) not in self._trained:
            if not self._session.validation.is_trained(model):
                return False
            self._trained.add(id(model))
        return True

    def resume(self, model: nn.Module) -> None:
        """A forward is under way that was passed over without a word here."""
        self.under_way.append(id(model))

    def passed(self, model: nn.Module, output: object) -> bool:
        """Whether the forward that ends was passed over at its start, and did not fail."""
        passed = self.under_way
        if not passed or passed[-1] != id(model) or get_ident() != self._thread:
            return False
        passed.pop()
        return output is not None
