"""The fast path: batches of a plain loop that repeat the ones before.

Between real steps memguard's code is cold: each function that a batch passes through costs a fraction of a microsecond,
and the long way (`PlainLoop`, `BatchInference`, `Session`, `ProbeDispatcher`) has dozens. A batch of one forward and
one step, in a loop of nothing else, needs few of them: the hooks of `fast_path_hooks` take it, and probes hear
only of a batch that is sampled. Whatever is out of the ordinary leaves the fast path where it happens.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable
from threading import get_ident
from typing import TYPE_CHECKING, Any, final

import torch
from torch import nn
from torch.optim.optimizer import Optimizer

from memguard.evidence.sampling_budget import MAX_INTERVAL
from memguard.evidence.shapes import describe_shapes
from memguard.forks import process
from memguard.integrations.loop.hooks import ForwardListener, OpenForwards
from memguard.integrations.loop.inference import BatchInference
from memguard.integrations.loop.steps import steps_under_way
from memguard.records.fast_path_state import STEPPING
from memguard.records.stats import Stage

if TYPE_CHECKING:
    from memguard.integrations.session import Session

_TRAIN = Stage.TRAIN  # asked in each batch; an attribute of an Enum is looked up through its metaclass


def _nobody() -> None:
    return None


@final
class FastPath:
    """Stands before the long way: says which batches the hooks may take, and hands on all others.

    The hooks open and close a batch as the long way does; of what that would have told, only the number of batches that
    went by is told later, and who was called where somebody asks.

    What must be asked of each batch the hooks ask. What cannot change without a word to `stop`, `disturb` or `leave` is
    asked once, before the first batch of a row, by `may_follow`.

    Args:
        session: Where the batch begins and ends.
        loop: Knows whether the loop is one of such batches.
        forwards: Hears of the forward under way where the rest of its batch goes the long way.
        long: The long way.

    Attributes:
        row: What is shared with the hooks, and with the recorder.
    """

    def __init__(self, session: Session, loop: BatchInference, forwards: OpenForwards, long: ForwardListener) -> None:
        self._session, self._loop, self._forwards, self._long = session, loop, forwards, long
        self._recorder, self._probes, self._watch, self._oom = (
            session.recorder,
            session.probes,
            session.watch,
            session.oom,
        )
        self._is_off = False
        self._said = self._passed = self._stepped = 0
        self._optimizer: Callable[[], Optimizer | None] = _nobody
        self.row = session.recorder.row
        session.watch.request_attention = self.row.halt

    @property
    def is_inside(self) -> bool:
        """Whether the forward of a batch that goes the short way is under way."""
        return self.row.is_open and self._forwards.find(self.row.model, in_hook=False) is not None

    def passed_over(self, model: nn.Module) -> None:
        """A forward on the long way was passed over, or could have been if nobody had looked."""
        self._passed = id(model)  # a number is enough: `stop` comes before another model can have it

    def over(self) -> None:
        """A batch that went the long way is over, whatever ended it."""
        self.stop()
        self.row.model, self._passed = self._passed, 0

    def may_follow(self) -> None:
        """An optimizer's step has ended one; if it was an ordinary one, those to come may go the short way."""
        row, probes = self.row, self._probes
        self.stop()
        row.optimizer = self._stepped if self._optimizer() is not None else 0
        if (
            row.model
            and row.optimizer
            and not self._is_off
            and self._loop.is_plain(row.model)
            and self._session.is_calm
        ):
            self._recorder.begin_row()
            if self._session.on_batch is not None:
                row.force_slow_path()
            is_calm = probes.is_quiet and row.batch > self._watch.dense_until
            unseen = probes.quiet_batches_ahead(_TRAIN) if is_calm else 0
            row.told = not unseen
            if unseen:
                self._session.others.listen(False)
            if unseen or not probes.hears_more:
                row.left = unseen or MAX_INTERVAL

    def give_up(self) -> None:
        """It failed: every batch goes the long way from now on."""
        self._is_off = True
        self.row.halt()

    def stop(self) -> None:
        """The next batch goes the long way."""
        row = self.row
        row.left = -1
        if row.begun:
            self.tell()
            if row.begun != self._said:
                self._loop.alike_passed()
            if not row.told:
                self._watch.batches += row.begun
                self._probes.pace.pass_by(_TRAIN, row.begun)
            row.begun = self._said = 0
        if row.awaited == STEPPING:
            row.awaited = 0

    def disturb(self) -> None:
        """Something happened, in any thread: the next batch goes the long way, and what it asks for is known."""
        self.row.halt()
        self.tell()

    def tell(self) -> None:
        """Tells of the newest call of the model that was taken."""
        if self.row.begun:
            self._oom.called(self.row.model, self._watch.batch, training=True)

    # Forwards, told by their hooks

    def forward_start(self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A root model is called, and not in an ordinary batch."""
        row = self.row
        if (row.left > 0 or row.begun or row.awaited) and get_ident() == row.thread and process.pid == row.pid:
            try:
                if row.is_open:
                    self.leave(in_hook=True)
                else:
                    self.stop()
            except Exception as error:
                self._failed(error)
        self._long.forward_start(model, args, kwargs)

    def describe(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Remembers the shapes of a forward's inputs, those of a single tensor so that the next one can be compared."""
        row = self.row
        try:
            row.shape, row.shapes = None, self._recorder.number_of(describe_shapes(args or kwargs))
            if len(args) == 1 and not kwargs and type(args[0]) is torch.Tensor:
                with contextlib.suppress(RuntimeError):  # a nested tensor has no shape
                    row.shape, row.dtype = args[0].shape, args[0].dtype
        except Exception as error:
            self._failed(error)
            return False
        return True

    def forward_end(self, model: nn.Module, args: tuple[Any, ...], output: object) -> None:
        """A root model has answered, or failed."""
        self._long.forward_end(model, args, output)

    def hook_failed(self, error: Exception) -> None:
        """A hook of ours raised."""
        self._long.hook_failed(error)

    # Steps, told by the hooks on all optimizers

    def step_start(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        """An optimizer begins its step, and not the awaited one."""
        row = self.row
        if get_ident() == row.thread and process.pid == row.pid:
            try:
                if row.is_open:
                    self.leave(in_hook=False)
                else:
                    row.awaited = STEPPING
                    if self._optimizer() is not optimizer:
                        self._stepped = id(optimizer)
                        self._optimizer = weakref.ref(optimizer, self._optimizer_gone)
                    if row.begun != self._said:
                        self._said = row.begun
                        self._loop.alike_passed()
            except Exception as error:
                self._failed(error)
        self._session.step_start(optimizer, args, kwargs)

    def step_end(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        """An optimizer has made its step, and not the awaited one."""
        row = self.row
        if row.awaited == STEPPING and get_ident() == row.thread and steps_under_way() <= 1:  # this one is, still
            row.awaited = 0
        self._session.step_end(optimizer, args, kwargs)

    def batch_ended(self, *, marked: bool) -> None:
        """A batch of the row is over, and it was no other one's like.

        Args:
            marked: Whether its end is; else it is time to look at clocks and memory, or to work out what waits.
        """
        try:
            row, session, probes, watch = self.row, self._session, self._probes, self._watch
            judged = not marked and self._recorder.end_alike()
            is_last = not row.left
            if row.told:
                is_first = probes.active and probes.pace.is_first
                if row.left > 0 and not (is_first or (probes.active and watch.batch < watch.dense_until)):
                    is_last = True  # maybe nobody will look at the next ones
                probes.batch_end(settles=not (marked and is_first))
                if not marked:
                    session.account.settle()
            elif judged and (probes.waiting or probes.seconds != probes.settled_seconds):
                probes.settle()
            if probes.waiting:
                self._recorder.learn(probes.take())
            if session.on_batch is not None:
                session.on_batch()
                row.force_slow_path()
            if is_last:
                self.may_follow()
        except Exception as error:
            self._failed(error)

    def leave(self, *, in_hook: bool) -> None:
        """The rest of the open batch goes the long way, as if all of it had; also where a transform calls a model.

        Args:
            in_hook: Whether a model is called just now, by whose hook this comes.
        """
        session, row = self._session, self.row
        self._recorder.open_alike()
        if not row.told:
            self._probes.join()
        self._loop.begun_alike()
        self.stop()
        under_way = self._forwards.adopt(row.model, in_hook=in_hook)
        session.calm.is_on = self._probes.passes_over and not self._probes.active and self._recorder.batch_is_open
        if under_way is not None and session.calm.is_on:
            session.calm.resume(under_way)
        if steps_under_way():
            self._loop.step_start()

    def _optimizer_gone(self, reference: object) -> None:
        """Another one may have its number."""
        self.row.halt()

    def _failed(self, error: Exception) -> None:
        self.give_up()
        self._session.recorder.failed("short way", error)
