"""The short way of a plain loop's batch that is like those before it and that nobody looks at.

Between real steps memguard's code is cold: each function that a batch passes through costs a microsecond or more, and
the long way (`PlainLoop`, `BatchInference`, `Session`, `Probes`) has dozens. A batch of one forward and one step, in a
loop of nothing else, needs few of them. Whatever is out of the ordinary goes the long way, from where it happens.
"""

from __future__ import annotations

import contextlib
from sys import exc_info
from threading import get_ident
from typing import TYPE_CHECKING, Any, final

import torch
from torch import nn
from torch.optim.optimizer import Optimizer

from memguard.forks import process
from memguard.integrations.loop.hooks import OpenForwards
from memguard.integrations.loop.inference import BatchInference
from memguard.probes.shapes import Entry, describe_shapes
from memguard.probes.transforms import in_eager_transform
from memguard.stats import Stage

if TYPE_CHECKING:
    from memguard.integrations.session import Session


@final
class Express:
    """Takes the forwards and steps of ordinary batches, and says which it took.

    It opens and closes the batch as the long way does; of what that would have told, only the number of batches that
    went by is told later.

    Args:
        session: Where the batch begins and ends.
        loop: Knows whether the loop is one of such batches.
        forwards: Hears of the forward under way where the rest of its batch goes the long way.

    Attributes:
        is_open: Whether the open batch goes the short way.
        is_inside: Whether its forward is under way.
    """

    def __init__(self, session: Session, loop: BatchInference, forwards: OpenForwards) -> None:
        self._session, self._loop, self._forwards = session, loop, forwards
        self._recorder, self._probes, self._watch = session.recorder, session.probes, session.watch
        self.is_open = self.is_inside = self._stepping = self._is_off = False
        self._left = self._gone = 0
        self._model = self._passed = self._optimizer = self._stepped = 0
        self._shape: torch.Size | None = None
        self._dtype: torch.dtype | None = None
        self._shapes: tuple[Entry, ...] = ()
        self._thread = get_ident()
        self._pid = process.pid

    def passed_over(self, model: nn.Module) -> None:
        """A forward on the long way was passed over."""
        self._passed = id(model)  # a number is enough: `stop` comes before another model can have it

    def may_follow(self) -> None:
        """A batch that went the long way is over; if it was an ordinary one, those to come may go the short way."""
        self.stop()
        self._model, self._passed = self._passed, 0
        self._optimizer = self._stepped
        if self._model and not self._is_off and not self._loop.needs_backward:
            self._left = self._probes.pace.calm_ahead(Stage.TRAIN)

    def give_up(self) -> None:
        """It failed: every batch goes the long way from now on."""
        self._is_off = True
        self._left = self._gone = 0

    def stop(self) -> None:
        """The next batch goes the long way."""
        if self._gone:
            self._probes.pace.pass_by(Stage.TRAIN, self._gone)
        self._left = self._gone = 0

    def forward(self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether a forward that begins was taken."""
        if not (self._left or self._gone) or get_ident() != self._thread or process.pid != self._pid:
            return False
        if not self._left:
            self.stop()
            return False
        recorder, session = self._recorder, self._session
        batch = recorder.batch
        if not (
            id(model) == self._model
            and model.training
            and torch.is_grad_enabled()
            and exc_info()[1] is None
            and not in_eager_transform()
            and session.is_calm(batch)
            and self._loop.begins_alike(self._model)
        ):
            self.stop()
            return False
        self._left -= 1
        self._gone += 1
        self.is_open = self.is_inside = True
        try:
            inputs = args[0] if len(args) == 1 and not kwargs else None
            alike = type(inputs) is torch.Tensor and inputs.shape == self._shape and inputs.dtype is self._dtype
        except RuntimeError:
            alike = False  # a nested tensor has no shape
        if not alike:
            self._describe(args, kwargs)
        recorder.batch_start(None, self._shapes)
        self._probes.pass_by(batch)
        session.oom.called(model, batch)
        return True

    def _describe(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Remembers the shapes of a forward's inputs, those of a single tensor so that the next one can be compared."""
        self._shape, self._shapes = None, describe_shapes(args or kwargs)
        if len(args) == 1 and not kwargs and type(args[0]) is torch.Tensor:
            with contextlib.suppress(RuntimeError):  # a nested tensor has no shape
                self._shape, self._dtype = args[0].shape, args[0].dtype

    def forward_end(self, output: object) -> bool:
        """Whether the forward that ends was taken, and did not fail."""
        if not self.is_inside or get_ident() != self._thread:
            return False
        self.is_inside = False
        return output is not None

    def step_start(self, optimizer: Optimizer) -> bool:
        """Whether a step that begins was taken: that of the open batch, by the optimizer that made the last ones."""
        number = id(optimizer)
        if not self.is_open:
            self._stepped = number
            return False
        if number != self._optimizer or self._stepping:
            return False
        self._stepping = True
        return True

    def step_end(self, optimizer: Optimizer) -> bool:
        """Whether the step that ends was taken; the batch is over with it."""
        if not (self._stepping and self.is_open and id(optimizer) == self._optimizer):
            return False
        self.is_open = self.is_inside = self._stepping = False
        self._recorder.optimizer_steps += 1
        self._watch.optimizer_steps += 1
        self._loop.ends_alike()
        self._session.batch_end()
        return True

    def leave(self, *, in_hook: bool) -> None:
        """The rest of the open batch goes the long way, as if all of it had.

        Args:
            in_hook: Whether a model is called just now, by whose hook this comes.
        """
        session = self._session
        inside, stepping = self.is_inside, self._stepping
        self.is_open = self.is_inside = self._stepping = False
        self.stop()
        session.calm.is_on = self._recorder.batch_is_open
        if inside and (under_way := self._forwards.adopt(self._model, in_hook=in_hook)) is not None:
            session.calm.resume(under_way)
        if stepping:
            self._loop.step_start()
