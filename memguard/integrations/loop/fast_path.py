"""The fast path: batches of a plain loop that repeat the ones before.

Between real steps memguard's code is cold: each function that a batch passes through costs a fraction of a microsecond,
and the long way (`PlainLoop`, `BatchInference`, `Session`, `ProbeDispatcher`) has dozens. Once a loop repeats itself,
whatever its turns consist of, each of its events is known before it comes, and what follows from it: the hooks of
`fast_path_hooks` compare the one with the other, and probes hear only of batches that are sampled. Whatever is out
of the ordinary leaves the fast path where it happens.
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
from memguard.integrations.loop.cycles import ANSWERED, CALLED, STEPPED, STEPPING, CycleFinder, Symbol
from memguard.integrations.loop.hooks import ForwardListener, OpenForwards
from memguard.integrations.loop.inference import BatchInference
from memguard.integrations.loop.turns import batches_after, batches_within, is_simple, turn_of
from memguard.records.fast_path_state import LoopEvent
from memguard.records.stats import Stage

if TYPE_CHECKING:
    from memguard.integrations.session import Session

LEAST_BATCHES = 8
"""Batches of a stretch of the fast path; where one ends earlier, the loop does not repeat itself like that."""
_MOST_KNOWN = 64


@final
class FastPath:
    """Stands before the long way: says which events the hooks may take, and hands on all others.

    The hooks open and close a batch as the long way does; of what that would have told, only the number of batches that
    went by is told later, and who was called where somebody asks.

    Backwards are not heard there: each is taken to come where it came before.

    What must be asked of each event the hooks ask. What cannot change without a word to `disturb` or `leave` is asked
    once, as the fast path is entered.

    Args:
        session: Where the batch begins and ends.
        loop: Infers batches from events; off the fast path, where it is as it would be without.
        forwards: Hears of the forward under way where the rest of its batch goes the long way.
        long: The long way.
        enter: Goes into a stage, as the long way does.

    Attributes:
        row: What is shared with the hooks, and with the recorder.
    """

    def __init__(
        self,
        session: Session,
        loop: BatchInference,
        forwards: OpenForwards,
        long: ForwardListener,
        enter: Callable[[Stage], None],
    ) -> None:
        self._session, self._loop, self._forwards, self._long = session, loop, forwards, long
        self._enter_stage = enter
        self._recorder, self._probes, self._watch = session.recorder, session.probes, session.watch
        self._is_off = False
        self._finder = CycleFinder()
        self._known: dict[tuple[int, Stage | None], LoopEvent] = {}
        """Turns that the loop has repeated, by the model and the stage of a batch that begins in them."""
        self._at: LoopEvent | None = None
        """The event of a known turn that is to come."""
        self._followed = self._length = 0
        """So many events came as in that turn, all of them with the same known before; and how many it has."""
        self._from: LoopEvent | None = None
        """The event with which the fast path was entered, or after which batches were counted last."""
        self._entered = 0
        """The batch in which the loop came from the long way."""
        self._ends = self._begins = self._is_odd = self._is_in_event = False
        """What follows from the event that is on the long way now."""
        self._is_stale = False
        """Whether one of the objects is gone, and another one may have its number."""
        self._stage: Stage | None = None
        self._objects: dict[int, weakref.ref[Any]] = {}
        self.row = session.recorder.row
        session.watch.request_attention = self.row.halt

    @property
    def is_inside(self) -> bool:
        """Whether the forward of a batch that goes the short way is under way."""
        event = self.row.expected
        answered = event.answered if event is not None else 0
        return bool(answered) and self._forwards.find(answered, in_hook=False) is not None

    # What happens on the long way

    def begin(self, stage: Stage) -> None:
        """A batch begins on the long way."""
        self._is_odd |= self._begins
        self._begins, self._stage = True, stage
        if not self._is_in_event:
            self.unsettle()

    def over(self) -> None:
        """A batch ends on the long way."""
        self._is_odd |= self._ends or self._begins
        self._ends = True
        if not self._is_in_event:
            self.unsettle()

    def unsettle(self) -> None:
        """What the loop does now it does not repeat."""
        self._is_odd = True
        self._lose()
        self._finder.interrupt()

    def forget(self) -> None:
        """Models come and go: nothing is known of the loop."""
        if self.row.expected is not None:
            self.leave(in_hook=False)
        self.unsettle()
        self._finder.clear()
        self._known.clear()
        self._objects.clear()

    def give_up(self) -> None:
        """It failed: every batch goes the long way from now on."""
        self._is_off = True
        self.row.halt()

    def disturb(self) -> None:
        """Something happened, in any thread: the next batch goes the long way, and what it asks for is known."""
        self.row.halt()
        self.tell()

    def tell(self) -> None:
        """Tells of the newest calls of the models that the fast path has taken."""
        first = self.row.expected
        for event in turn_of(first.next) if first is not None else ():
            if event.called:
                self._session.oom.called(event.called, self._watch.batch, training=event.training)

    def count(self) -> None:
        """Tells how many batches went by."""
        row, begun, event = self.row, self.row.begun, self._from
        if not begun or event is None:
            return
        row.begun = 0
        for stage, batches in batches_after(event, begun).items():
            self._watch.batches += batches
            self._probes.pace.pass_by(stage, batches)
        self._from = row.expected

    # Forwards, told by their hooks

    def forward_start(self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A root model is called, and that was not expected."""
        if not self._comes(in_hook=True) or self._session.is_foreign():
            self._long.forward_start(model, args, kwargs)
            return
        self._know(model)
        before = self._state()
        self._long.forward_start(model, args, kwargs)
        self._follow(before, CALLED, model, model.training, torch.is_grad_enabled())

    def forward_end(self, model: nn.Module, args: tuple[Any, ...], output: object) -> None:
        """A root model has answered, or failed."""
        if not self._comes(in_hook=False) or self._session.is_foreign():
            self._long.forward_end(model, args, output)
            return
        before = self._state()
        self._long.forward_end(model, args, output)
        if output is None:
            self.unsettle()
        self._follow(before, ANSWERED, model)

    def hook_failed(self, error: Exception) -> None:
        """A hook of ours raised."""
        self._long.hook_failed(error)

    def describe(self, event: LoopEvent, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Remembers the shapes of a batch's inputs, those of a single tensor so that the next one can be compared."""
        try:
            described = describe_shapes(args or kwargs)
            event.shape, event.shapes = None, self._recorder.number_of(described) if described else None
            if len(args) == 1 and not kwargs and type(args[0]) is torch.Tensor:
                with contextlib.suppress(RuntimeError):  # a nested tensor has no shape
                    event.shape, event.dtype = args[0].shape, args[0].dtype
        except Exception as error:
            self._failed(error)
            return False
        return True

    # Steps, told by the hooks on all optimizers

    def step_start(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        """An optimizer begins its step, and that was not expected."""
        if not self._comes(in_hook=False):
            self._session.step_start(optimizer, args, kwargs)
            return
        self._know(optimizer)
        before = self._state()
        self._session.step_start(optimizer, args, kwargs)
        self._follow(before, STEPPING, optimizer)

    def step_end(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        """An optimizer has made its step, and that was not expected."""
        if not self._comes(in_hook=False):
            self._session.step_end(optimizer, args, kwargs)
            return
        before = self._state()
        self._session.step_end(optimizer, args, kwargs)
        self._follow(before, STEPPED, optimizer)

    # On the fast path

    def batch_ended(self) -> None:
        """A batch that probes saw is over, or it is time to read clocks and memory, or to judge what waits."""
        try:
            session, probes, recorder, row = self._session, self._probes, self._recorder, self.row
            in_bounds = not row.is_open
            judged = not in_bounds and recorder.end_alike()
            if row.told:
                probes.batch_end()
                if not in_bounds:
                    session.account.settle()
            elif judged and (probes.waiting or probes.seconds != probes.settled_seconds):
                probes.settle()
            if probes.waiting:
                recorder.learn(probes.take())
            if session.on_batch is not None and session.on_batch():
                row.force_slow_path()
            is_last = not (row.left > 0 and self._stays_told()) if row.told else not row.left
            if is_last and row.expected is not None:  # probes see the next one, or none of the next ones
                row.left = 0
                self.leave(in_hook=False)
                if self._at is not None:
                    self._enter(self._at)
        except Exception as error:
            self._failed(error)

    def leave(self, *, in_hook: bool) -> None:
        """What comes goes the long way, and what was taken is as if all of it had; also where a transform runs.

        Args:
            in_hook: Whether a model is called just now, by whose hook this comes.
        """
        session, row, recorder = self._session, self.row, self._recorder
        event, is_open, told = row.expected, row.is_open, row.told
        if event is None:
            return
        self.tell()
        is_short = not told and row.left > 0 and row.batch - self._entered < LEAST_BATCHES
        self.count()
        row.expected, row.left, row.told = None, -1, False
        self._at = event
        if is_short:
            self._known = {key: known for key, known in self._known.items() if event not in turn_of(known)}
            self._finder.forget([each.symbol for each in turn_of(event)])
            self._lose()
        self._loop.resume(event.before)
        if row.stage is not recorder.long_stage:
            row.is_open = False
            with recorder.without_edges():
                self._enter_stage(row.stage)
        if is_open:
            row.is_open = True
            recorder.open_alike()
            if not told:
                self._probes.join()
        under_way = self._forwards.adopt(event.answered, in_hook=in_hook) if event.answered else None
        is_calm = self._probes.passes_over and not self._probes.active
        session.calm.is_on = is_open and row.stage is Stage.TRAIN and is_calm
        if under_way is not None and session.calm.is_on:
            session.calm.resume(under_way)

    # Inside

    def _comes(self, *, in_hook: bool) -> bool:
        """An event is on the long way: whether it is the loop's."""
        row = self.row
        if get_ident() != row.thread or process.pid != row.pid:
            return False
        if row.expected is not None:
            try:
                self.leave(in_hook=in_hook)
            except Exception as error:
                self._failed(error)
        if self._is_stale:
            self._is_stale = False
            self.forget()
        self._ends = self._begins = self._is_odd = False
        self._is_in_event = not self._is_off
        return self._is_in_event

    def _state(self) -> object:
        """What is known of the loop, where it is to be compared; not once all of a turn was as in the one before."""
        return self._loop.state() if self._at is not None and self._followed < self._length else None

    def _know(self, thing: nn.Module | Optimizer) -> None:
        """Another one may have its number later."""
        if id(thing) not in self._objects:
            self._objects[id(thing)] = weakref.ref(thing, self._gone)

    def _gone(self, reference: object) -> None:
        self._is_stale = True  # this may be inside any code
        self.row.halt()

    def _lose(self) -> None:
        self._at, self._followed = None, 0

    def _follow(
        self, before: object, kind: int, thing: nn.Module | Optimizer, training: bool = False, grad: bool = False
    ) -> None:
        """An event went the long way: follows it in what the loop repeats, and enters the fast path where it can."""
        self._is_in_event = False
        try:
            if self._loop.explicit:
                return
            if self._is_odd:
                self._lose()
                self._finder.interrupt()
                return
            stage = self._stage if self._begins else None
            symbol = Symbol(kind, id(thing), training, grad, self._ends, self._begins, stage)
            event = self._at
            if event is not None and event.symbol == symbol:
                if self._followed < self._length:
                    self._followed = self._followed + 1 if event.before == before else 0
                    event.before = before
                self._at = event.next
                if self._followed >= self._length and kind != CALLED:
                    self._entered = self.row.batch
                    self._enter(event.next)
                return
            if event is not None:
                self._lose()
            key = symbol.number, stage
            if symbol.begins and (event := self._known.get(key)) is not None and event.symbol == symbol:
                self._begin_following(event)
            if (event := self._finder.push(symbol)) is not None and len(self._known) < _MOST_KNOWN:
                self._known[key] = event
                self._begin_following(event)
        except Exception as error:
            self._failed(error)

    def _begin_following(self, event: LoopEvent) -> None:
        self._at, self._followed, self._length = event.next, 0, sum(1 for _ in turn_of(event))

    def _enter(self, event: LoopEvent) -> None:
        """The next batches may go the fast way, if nobody wants to see them."""
        row, probes, session, recorder = self.row, self._probes, self._session, self._recorder
        is_open = recorder.batch_is_open
        if not session.is_calm or (is_open and probes.active):
            return
        left = batches_within(event, self._probes.quiet_batches_ahead) if self._is_quiet() else 0
        told = not left
        is_unfit = told and (is_open or probes.hears_more or not is_simple(event))
        if is_unfit or not all(map(self._is_trained, turn_of(event))):
            return
        session.others.listen(told)
        row.stage = recorder.long_stage
        if is_open:
            recorder.hand_over()
            probes.leave()
            session.calm.batch_end()
        recorder.begin_row()
        if session.on_batch is not None:
            row.force_slow_path()
        row.left, row.told, row.begun, self._from = left or MAX_INTERVAL, told, 0, event
        row.expected = event

    def _is_quiet(self) -> bool:
        """Whether no probe asks for every batch."""
        return self._probes.is_quiet and self.row.batch > self._watch.dense_until

    def _stays_told(self) -> bool:
        """Whether probes see the next batch of a simple loop too."""
        return not (self._is_quiet() and self._probes.quiet_batches_ahead(Stage.TRAIN))

    def _is_trained(self, event: LoopEvent) -> bool:
        """Whether the validation guard has nothing to learn from this event."""
        if not (event.called and event.training and event.grad):
            return True
        reference = self._objects.get(event.called)
        model = reference() if reference is not None else None
        return model is not None and self._session.calm.is_trained(model)

    def _failed(self, error: Exception) -> None:
        self.give_up()
        self._session.recorder.failed("short way", error)
