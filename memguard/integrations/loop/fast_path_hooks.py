"""The hooks of the fast path: short, because each function and object costs.

Whatever is out of the ordinary is handed on, before anything is changed, to `memguard.integrations.loop.fast_path`.
Their code is longer than it would have to be: it calls nothing of memguard's own that it can do without.
"""

from __future__ import annotations

from collections.abc import Callable
from sys import exc_info
from threading import get_ident
from typing import TYPE_CHECKING, Any, final

from torch import Tensor, is_grad_enabled, nn
from torch.optim.optimizer import Optimizer

from memguard.evidence.guarded_hook import StoppableHook, compiler, functorch_stack, is_traced, tracing_state
from memguard.evidence.interface import ProbeContext
from memguard.forks import process
from memguard.records.fast_path_state import FastPathState, LoopEvent
from memguard.torch_objects.hidden_hooks import skipped_by_dynamo

if TYPE_CHECKING:
    from memguard.evidence.dispatcher import ProbeDispatcher
    from memguard.integrations.loop.fast_path import FastPath


class FastPathHook(StoppableHook):
    """What the four have in common; a stopped one holds nothing of the run either.

    Args:
        express: What they share; its row of batches, and who is told where one ends that cannot be noted here.
        probes: Get the events of a batch that is sampled; their watch knows the counts.
        call: Told where it is not the event that is expected.
        failed: Told of an exception in that.
    """

    __slots__ = ("_ended", "_row", "_tell", "_watch")

    def __init__(
        self,
        express: FastPath,
        probes: ProbeDispatcher,
        tell: Callable[..., object],
        call: Callable[..., None],
        failed: Callable[[Exception], None],
    ) -> None:
        super().__init__(call, failed)
        self._row, self._watch, self._ended = express.row, probes.watch, express.batch_ended
        self._tell = tell

    def stop(self) -> None:
        """Does nothing from now on, as `StoppableHook.stop` says."""
        super().stop()
        self._row = FastPathState()  # in which nothing is expected
        self._watch, self._ended, self._tell = ProbeContext(), _nothing, _nothing


@final
class ForwardStart(FastPathHook):
    """A root model is called: in an ordinary batch, or at the start of one."""

    __slots__ = ("_describe",)

    def __init__(self, express: FastPath, probes: ProbeDispatcher) -> None:
        super().__init__(express, probes, probes.ordinary_start, express.forward_start, express.hook_failed)
        self._describe = express.describe

    @skipped_by_dynamo
    def __call__(self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> None:
        """What torch calls; without keywords where it was copied to another module, as quantization does."""
        if is_traced() or compiler._is_compiling_flag or kwargs is None:
            return
        row = self._row
        event = row.expected
        if (
            event is not None
            and id(model) == event.called
            and get_ident() == row.thread
            and model.training is event.training
            and is_grad_enabled() is event.grad
            and exc_info()[1] is None
            and functorch_stack() is None
            and tracing_state() is None
            and process.pid == row.pid
        ):
            try:
                if not event.begins:
                    if event.ends and not row.end():
                        self._ended()
                    row.expected = event.next
                    return
                inputs = args[0] if len(args) == 1 and not kwargs else None
                if row.left > 0 and (
                    (
                        type(inputs) is Tensor
                        and not inputs.is_nested  # it would refuse to tell its shape
                        and inputs.shape == event.shape
                        and inputs.dtype is event.dtype
                    )
                    or self._describe(event, args, kwargs)
                ):
                    if event.ends and not row.end():
                        self._ended()
                    if row.left > 0:  # nothing was found as it ended
                        row.left -= 1
                        row.is_open = True
                        row.stage = self._watch.stage = event.stage
                        row.shapes = event.shapes
                        self._watch.batch = row.batch
                        row.expected = event.next
                        if row.told:
                            self._tell(model, args, kwargs)
                        else:
                            row.begun += 1
                        return
            except Exception as error:
                self.end(error)
                return
        self.hand_on(model, args, kwargs)

    def stop(self) -> None:
        """Does nothing from now on, and holds nothing."""
        super().stop()
        self._describe = _takes_nothing


@final
class ForwardEnd(FastPathHook):
    """A root model has answered: in an ordinary batch there is nothing to say."""

    __slots__ = ()

    def __init__(self, express: FastPath, probes: ProbeDispatcher) -> None:
        super().__init__(express, probes, probes.forward_end, express.forward_end, express.hook_failed)

    @skipped_by_dynamo
    def __call__(self, model: nn.Module, args: tuple[Any, ...], output: object) -> None:
        """What torch calls; the output is None after an error."""
        if is_traced() or compiler._is_compiling_flag:
            return
        row = self._row
        event = row.expected
        if event is not None and id(model) == event.answered and output is not None and get_ident() == row.thread:
            row.expected = event.next
            if row.told:
                try:
                    self._tell(model, args, output)
                except Exception as error:
                    self.end(error)
        else:
            self.hand_on(model, args, output)


@final
class StepStart(FastPathHook):
    """An optimizer begins its step: nothing to say of the one that is expected."""

    __slots__ = ()

    def __init__(self, express: FastPath, probes: ProbeDispatcher, failed: Callable[[Exception], None]) -> None:
        super().__init__(express, probes, _nothing, express.step_start, failed)

    @skipped_by_dynamo
    def __call__(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        """What torch calls."""
        if is_traced() or compiler._is_compiling_flag:
            return
        row = self._row
        event = row.expected
        if event is not None and id(optimizer) == event.stepping and get_ident() == row.thread:
            row.expected = event.next
        else:
            self.hand_on(optimizer, args, kwargs)


@final
class StepEnd(FastPathHook):
    """An optimizer has made its step, with which an ordinary batch may be over."""

    __slots__ = ()

    def __init__(self, express: FastPath, probes: ProbeDispatcher, failed: Callable[[Exception], None]) -> None:
        super().__init__(express, probes, probes.optimizer_step_end, express.step_end, failed)

    @skipped_by_dynamo
    def __call__(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        """What torch calls."""
        if is_traced() or compiler._is_compiling_flag:
            return
        row = self._row
        event = row.expected
        if event is None or id(optimizer) != event.stepped or get_ident() != row.thread:
            self.hand_on(optimizer, args, kwargs)
            return
        try:
            row.expected = event.next
            row.optimizer_steps += 1
            if row.told:
                self._tell(optimizer)
            else:
                self._watch.optimizer_steps += 1
            if event.ends and (not row.end() or row.told or not row.left):
                self._ended()
        except Exception as error:
            self.end(error)


def _takes_nothing(event: LoopEvent, args: object, kwargs: object) -> bool:
    return False


def _nothing(*args: object) -> None:
    return None
