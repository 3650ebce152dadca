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

from memguard.allowing import lately
from memguard.evidence.grad_transforms import compiler, functorch_stack, is_traced, tracing_state
from memguard.evidence.guarded_hook import StoppableHook
from memguard.evidence.interface import ProbeContext
from memguard.forks import process
from memguard.records.batch_ends import BatchEnd
from memguard.records.fast_path_state import FastPathState
from memguard.torch_objects.hidden_hooks import skipped_by_dynamo

if TYPE_CHECKING:
    from memguard.evidence.dispatcher import ProbeDispatcher
    from memguard.integrations.loop.fast_path import FastPath


_make = tuple.__new__  # the constructor of a NamedTuple is one more call


class FastPathHook(StoppableHook):
    """What the four have in common; a stopped one holds nothing of the run either.

    Args:
        row: What they share.
        call: Told where it is no ordinary batch.
        failed: Told of an exception in that.
    """

    __slots__ = ("_row",)

    def __init__(self, row: FastPathState, call: Callable[..., None], failed: Callable[[Exception], None]) -> None:
        super().__init__(call, failed)
        self._row = row

    def stop(self) -> None:
        """Does nothing from now on, as `StoppableHook.stop` says."""
        super().stop()
        self._row = FastPathState()  # in which nothing is taken


@final
class ForwardStart(FastPathHook):
    """A root model is called: an ordinary batch begins if it is called as in the last one."""

    __slots__ = ("_describe", "_tell", "_watch")

    def __init__(self, express: FastPath, probes: ProbeDispatcher) -> None:
        super().__init__(express.row, express.forward_start, express.hook_failed)
        self._describe, self._watch = express.describe, probes.watch
        self._tell: Callable[..., object] = probes.ordinary_start

    @skipped_by_dynamo
    def __call__(self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> None:
        """What torch calls; without keywords where it was copied to another module, as quantization does."""
        if is_traced() or compiler._is_compiling_flag or kwargs is None:
            return
        row = self._row
        if (
            row.left > 0
            and id(model) == row.model
            and not row.awaited
            and get_ident() == row.thread
            and model.training
            and is_grad_enabled()
            and exc_info()[1] is None
            and functorch_stack() is None
            and tracing_state() is None
            and process.pid == row.pid
        ):
            try:
                inputs = args[0] if len(args) == 1 and not kwargs else None
                if (
                    type(inputs) is Tensor
                    and not inputs.is_nested  # it would refuse to tell its shape
                    and inputs.shape == row.shape
                    and inputs.dtype is row.dtype
                ) or self._describe(args, kwargs):
                    row.left -= 1
                    row.begun += 1
                    row.awaited = row.optimizer
                    self._watch.batch = row.batch
                    if row.told:
                        self._tell(model, args, kwargs)
                    return
            except Exception as error:
                self.end(error)
                return
        self.hand_on(model, args, kwargs)

    def stop(self) -> None:
        """Does nothing from now on, and holds nothing."""
        super().stop()
        self._describe, self._tell, self._watch = _takes_nothing, _nothing, ProbeContext()


@final
class ForwardEnd(FastPathHook):
    """A root model has answered: in an ordinary batch that nobody looks at there is nothing to say."""

    __slots__ = ("_tell",)

    def __init__(self, express: FastPath, probes: ProbeDispatcher) -> None:
        super().__init__(express.row, express.forward_end, express.hook_failed)
        self._tell: Callable[..., object] = probes.forward_end

    @skipped_by_dynamo
    def __call__(self, model: nn.Module, args: tuple[Any, ...], output: object) -> None:
        """What torch calls; the output is None after an error."""
        if is_traced() or compiler._is_compiling_flag:
            return
        row = self._row
        if row.awaited <= 0 or output is None or get_ident() != row.thread:
            self.hand_on(model, args, output)
        elif row.told:
            try:
                self._tell(model, args, output)
            except Exception as error:
                self.end(error)

    def stop(self) -> None:
        """Does nothing from now on, and holds nothing."""
        super().stop()
        self._tell = _nothing


@final
class StepStart(FastPathHook):
    """An optimizer begins its step: nothing to say of the one that is awaited."""

    __slots__ = ()

    def __init__(self, express: FastPath, failed: Callable[[Exception], None]) -> None:
        super().__init__(express.row, express.step_start, failed)

    @skipped_by_dynamo
    def __call__(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        """What torch calls."""
        if not (is_traced() or compiler._is_compiling_flag) and id(optimizer) != self._row.awaited:
            self.hand_on(optimizer, args, kwargs)


@final
class StepEnd(FastPathHook):
    """An optimizer has made its step: with that of the awaited one an ordinary batch is over."""

    __slots__ = ("_ended", "_tell", "_watch")

    def __init__(self, express: FastPath, probes: ProbeDispatcher, failed: Callable[[Exception], None]) -> None:
        super().__init__(express.row, express.step_end, failed)
        self._ended, self._watch = express.batch_ended, probes.watch
        self._tell: Callable[..., object] = probes.optimizer_step_end

    @skipped_by_dynamo
    def __call__(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        """What torch calls."""
        if is_traced() or compiler._is_compiling_flag:
            return
        row = self._row
        if id(optimizer) != row.awaited or get_ident() != row.thread:
            self.hand_on(optimizer, args, kwargs)
            return
        row.awaited, marked = 0, False
        try:
            if row.told:
                self._tell(optimizer)
            else:
                self._watch.optimizer_steps += 1
            time, marks = row.clock(), row.marks
            if len(marks) < row.room and row.since <= time < row.until and not lately:
                batch, steps, look = row.batch, row.optimizer_steps + 1, row.look()
                marks.append(
                    _make(
                        BatchEnd, (batch, row.stage, row.epoch, None, steps, time, row.shapes, row.host_rss_bytes, look)
                    )
                )
                row.batch, row.optimizer_steps, marked = batch + 1, steps, True
        except Exception:
            pass  # the long way meets it again, and tells of it
        if marked and row.left and not row.told:
            return
        try:
            self._ended(marked=marked)
        except Exception as error:
            self.end(error)

    def stop(self) -> None:
        """Does nothing from now on, and holds nothing."""
        super().stop()
        self._ended, self._tell, self._watch = _nothing, _nothing, ProbeContext()


def _takes_nothing(args: object, kwargs: object) -> bool:
    return False


def _nothing(*args: object, **kwargs: object) -> None:
    return None
