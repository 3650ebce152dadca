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
from torch import is_grad_enabled, nn
from torch.optim.optimizer import Optimizer

from memguard.forks import process
from memguard.integrations.loop.hooks import ForwardListener, OpenForwards
from memguard.integrations.loop.inference import BatchInference
from memguard.integrations.loop.steps import steps_under_way
from memguard.probes.shapes import describe_shapes
from memguard.probes.transforms import in_eager_transform
from memguard.stats import Stage

if TYPE_CHECKING:
    from memguard.integrations.session import Session


@final
class Express:
    """Stands before the long way: takes the forwards and steps of ordinary batches, and hands on all others.

    It opens and closes the batch as the long way does; of what that would have told, only the number of batches that
    went by is told later, and who was called where somebody asks.

    What must be asked of each batch is asked here in few steps and few functions. What cannot change without a word to
    `stop`, `disturb` or `leave` is asked once, before the first batch of a row, by `may_follow`.

    Args:
        session: Where the batch begins and ends.
        loop: Knows whether the loop is one of such batches.
        forwards: Hears of the forward under way where the rest of its batch goes the long way.
        long: The long way.

    Attributes:
        is_inside: Whether the forward of a batch that goes the short way is under way.
        awaited: The identity of the optimizer whose step ends the batch that goes the short way; 0 where none does.
    """

    def __init__(self, session: Session, loop: BatchInference, forwards: OpenForwards, long: ForwardListener) -> None:
        self._session, self._loop, self._forwards, self._long = session, loop, forwards, long
        self._recorder, self._probes, self._watch, self._oom = (
            session.recorder,
            session.probes,
            session.watch,
            session.oom,
        )
        self._forward_start, self._forward_end = long.forward_start, long.forward_end
        self.is_inside = self._is_off = self._is_stepping = False
        self.awaited = 0
        self._left = self._gone = self._said = 0
        self._model = self._passed = self._optimizer = self._stepped = 0
        self._shape: torch.Size | None = None
        self._dtype: torch.dtype | None = None
        self._shapes: int | None = None
        self._thread = get_ident()
        self._pid = process.pid

    @property
    def is_open(self) -> bool:
        """Whether the open batch goes the short way."""
        return self.awaited != 0

    def passed_over(self, model: nn.Module) -> None:
        """A forward on the long way was passed over."""
        self._passed = id(model)  # a number is enough: `stop` comes before another model can have it

    def may_follow(self) -> None:
        """A batch that went the long way is over; if it was an ordinary one, those to come may go the short way."""
        self.stop()
        self._model, self._passed = self._passed, 0
        self._optimizer = self._stepped
        if (
            self._model
            and self._optimizer
            and not self._is_off
            and self._loop.is_plain(self._model)
            and self._session.is_calm
        ):
            self._left = self._probes.calm_ahead(Stage.TRAIN)

    def give_up(self) -> None:
        """It failed: every batch goes the long way from now on."""
        self._is_off = True
        self._left = 0

    def stop(self) -> None:
        """The next batch goes the long way."""
        if self._gone:
            self.tell()
            self._loop.alike_passed()
            self._probes.pace.pass_by(Stage.TRAIN, self._gone)
        self._left = self._gone = self._said = 0
        self._is_stepping = False

    def disturb(self) -> None:
        """Something happened, in any thread: the next batch goes the long way, and what it asks for is known."""
        self._left = 0
        self.tell()

    def tell(self) -> None:
        """Tells of the newest call of the model that was taken."""
        if self._gone:
            self._oom.called(self._model, self._watch.batch, training=True)

    # Forwards, told by RootHooks

    def forward_start(self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A root model is called: taken if it is called as in the last batch, and nobody listens."""
        if self._left or self._gone:
            try:
                if (
                    self._left > 0
                    and id(model) == self._model
                    and not (self.awaited or self._is_stepping)
                    and get_ident() == self._thread
                    and model.training
                    and is_grad_enabled()
                    and exc_info()[1] is None
                    and not in_eager_transform()
                    and process.pid == self._pid
                    and self._probes.is_quiet
                    and (batch := self._recorder.batch) > self._watch.dense_until
                ):
                    self._left -= 1
                    self._gone += 1
                    self.awaited, self.is_inside = self._optimizer, True
                    inputs = args[0] if args else None
                    try:
                        alike = inputs.shape == self._shape and inputs.dtype is self._dtype  # type: ignore[union-attr]
                    except (AttributeError, RuntimeError):
                        alike = False  # a nested tensor has no shape
                    if not alike or len(args) != 1 or kwargs:
                        self._describe(args, kwargs)
                    self._recorder.begin_alike(self._shapes)
                    watch = self._watch
                    watch.batch = batch
                    watch.batches += 1
                    return
                if get_ident() == self._thread and process.pid == self._pid:
                    self.stop()
            except Exception as error:
                self._failed(error)
        self._forward_start(model, args, kwargs)

    def _describe(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Remembers the shapes of a forward's inputs, those of a single tensor so that the next one can be compared."""
        self._shape, self._shapes = None, self._recorder.number_of(describe_shapes(args or kwargs))
        if len(args) == 1 and not kwargs and type(args[0]) is torch.Tensor:
            with contextlib.suppress(RuntimeError):  # a nested tensor has no shape
                self._shape, self._dtype = args[0].shape, args[0].dtype

    def forward_end(self, model: nn.Module, args: tuple[Any, ...], output: object) -> None:
        """A root model has answered."""
        if self.is_inside and get_ident() == self._thread:
            self.is_inside = False
            if output is not None:
                return
        self._forward_end(model, args, output)

    def hook_failed(self, error: Exception) -> None:
        """A hook of ours raised."""
        self._long.hook_failed(error)

    # Steps, told by the hooks on all optimizers

    def step_start(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        """An optimizer begins its step: no word to anybody if it is the `awaited` one."""
        if id(optimizer) == self.awaited:
            return
        if get_ident() == self._thread and process.pid == self._pid:
            try:
                if self.awaited:
                    self.leave(in_hook=False)
                else:
                    self._is_stepping, self._stepped = True, id(optimizer)
                    if self._gone != self._said:
                        self._said = self._gone
                        self._loop.alike_passed()
            except Exception as error:
                self._failed(error)
        self._session.step_start(optimizer, args, kwargs)

    def step_end(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        """An optimizer has made its step; with that of the `awaited` one the batch is over."""
        if id(optimizer) != self.awaited or get_ident() != self._thread or process.pid != self._pid:
            self._is_stepping = False
            self._session.step_end(optimizer, args, kwargs)
            return
        self.awaited, self.is_inside = 0, False
        try:
            recorder, session = self._recorder, self._session
            recorder.optimizer_steps += 1
            self._watch.optimizer_steps += 1
            if recorder.end_alike():
                self._settle()
            if session.on_batch is not None:
                session.on_batch()
        except Exception as error:
            self._failed(error)

    def _settle(self) -> None:
        """Some batches were worked out: what came up in between is passed on."""
        probes = self._probes
        if probes.waiting or probes.seconds != probes.settled_seconds:
            probes.settle()
            if probes.waiting:
                self._recorder.learn(probes.take())

    def leave(self, *, in_hook: bool) -> None:
        """The rest of the open batch goes the long way, as if all of it had.

        Args:
            in_hook: Whether a model is called just now, by whose hook this comes.
        """
        session = self._session
        inside = self.is_inside
        self.awaited, self.is_inside = 0, False
        self._probes.join()
        self._loop.begun_alike()
        self.stop()
        session.calm.is_on = self._recorder.batch_is_open
        if inside and (under_way := self._forwards.adopt(self._model, in_hook=in_hook)) is not None:
            session.calm.resume(under_way)
        if steps_under_way():
            self._loop.step_start()

    def _failed(self, error: Exception) -> None:
        self.give_up()
        self._session.recorder.failed("short way", error)
