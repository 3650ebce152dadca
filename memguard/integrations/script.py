"""Any training script under memguard, without a change in its code: `memguard run`.

A Lightning script is served by the callback that MEMGUARD=1 adds. In a plain one, the root models are those modules
with parameters that are called while no other module is running: global hooks find them, and are taken away again
except in one batch of sixteen, since they cost every module of the process a microsecond. While the program has a guard
of its own (a Trainer's callback, `watch`), nothing is looked for, and what was found is that one's. Until the first
module is called, backwards are heard as well: a program may train bare tensors. And so they are after the first
batches: one that comes while no batch is open is that of a model which is not known, made for another fold, trial or
patch.

Long because whether something is looked for is one state, which models, backwards and other guards change.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from threading import get_ident
from types import FrameType
from typing import Any, final

import torch
from torch import nn

from memguard.backends.choose import choose_backend
from memguard.evidence.graphs.graph_marks import is_compiled
from memguard.evidence.guarded_hook import in_transform
from memguard.evidence.host.cache_calls import hear_calls, stop_hearing_calls
from memguard.evidence.other_threads import OtherThreads
from memguard.integrations.child_processes import StartedProcesses
from memguard.integrations.guard import Guard
from memguard.integrations.lightning_class import OPTIONS_VARIABLE
from memguard.integrations.loop.backward_calls import BackwardCalls
from memguard.integrations.main_program import execute
from memguard.integrations.never_raises import shielded
from memguard.integrations.session import on_close, on_open, open_sessions
from memguard.options import Options, disabled
from memguard.records.stats import Stage
from memguard.records.summary import Summary
from memguard.torch_objects.hidden_hooks import HiddenHook
from memguard.torch_objects.module_parts import parameters_of

DENSE_BATCHES = 64
INTERVAL = 16
MAX_AGAIN = 64
"""First steps of optimizers, and backwards of models that are not known, at which root models are looked for again
and not found."""
MANY = 16
"""Backwards in one batch after which they may well be another model's: the known one is called no more."""


@final
class ScriptGuard:
    """Guards whatever root models a program calls, until it ends.

    Args:
        options: The settings; validation should be "warn" or "off", for a script run from outside is only observed.
    """

    def __init__(self, options: Options) -> None:
        self._options = replace(options, loggers=False)  # those of a Trainer, which has a guard of its own
        self._guard: Guard | None = None
        self._hooks = [HiddenHook(None, self._before, before=True), HiddenHook(None, self._after, always=True)]
        self._is_armed = False
        self._thread, self._pid = get_ident(), os.getpid()
        self._depth = 0
        self._elsewhere = OtherThreads()
        self._elsewhere.is_idle = self._is_idle
        self._again = self._disarmed_at = self._armed_until = 0
        self._is_past_dense = False
        self._batch = self._in_batch = self._models = 0
        """Of the last backward: the batch, backwards in it, and models that were known and alive."""
        self._compiled = self._is_aside = False
        self._backwards = BackwardCalls(self._backward, self._backward_failed, self._derivative)
        self._strange = BackwardCalls(self._strange_backward, self._backward_failed)

    def install(self, *, at_once: bool = True) -> None:
        """Begins to look for root models; a virtual device is there from the very beginning.

        Args:
            at_once: Else the virtual device begins as any other, with the first model: by then the process knows which
                rank it is.
        """
        if at_once and self._options.device.startswith("virtual:"):
            self._begin()
        self._arm()
        self._backwards.install()
        hear_calls(_nothing)
        on_open.append(self._own_opened)
        on_close.append(self._own_closed)

    def remove(self, reason: str) -> Summary | None:
        """Ends the run, if one began."""
        if self._own_opened in on_open:
            on_open.remove(self._own_opened)
        if self._own_closed in on_close:
            on_close.remove(self._own_closed)
        stop_hearing_calls(_nothing)
        self._backwards.remove()
        self._strange.remove()
        self._disarm()
        if self._elsewhere.trained is not None:
            self._begin()  # where nothing else was called: its summary tells of the thread
        guard, self._guard = self._guard, None
        return guard.close(reason) if guard is not None else None

    def _begin(self) -> Guard:
        if self._guard is None:
            self._guard = Guard([], [], self._options, quiet=True)
            self._guard.__enter__()
            self._guard.session.others.remove()  # all of them are found here
            self._guard.session.watch.elsewhere = self._elsewhere  # whose thread the new session's is
            self._guard.session.on_batch = self._after_batch
            self._guard.session.on_optimizer = self._look_again
        return self._guard

    def _is_guarded(self) -> bool:
        """Whether the program has a guard of its own: a callback of its Trainer, `wrap` or `watch`."""
        ours = self._guard.session if self._guard is not None else None
        return any(session is not ours for session in open_sessions())

    def _arm(self) -> None:
        if not self._is_armed and not self._compiled:
            self._depth = 0
            self._is_armed = True
            for hook in self._hooks:
                hook.put_on()

    def _disarm(self) -> None:
        self._is_armed = False
        for hook in self._hooks:
            hook.remove()

    def part_failed(self, name: str, error: Exception) -> None:
        """Looking for root models failed: the program goes on without it, told once."""
        self._disarm()
        self._backwards.remove()
        self._strange.remove()
        if self._guard is None:
            raise error  # nobody to tell it to: the shield logs it
        self._guard.part_failed(name, error)

    @shielded
    def _before(self, module: nn.Module, args: Any) -> None:
        if in_transform() or os.getpid() != self._pid:
            return
        if get_ident() != self._thread and not self._moves_here():
            self._elsewhere.start()
            return
        self._depth += 1
        if self._depth > 1 or self._is_guarded() or (self._guard is not None and self._guard.loop.is_in_forward):
            return
        if next(parameters_of(module), None) is None:
            return
        self._backwards.remove()
        guard = self._begin()
        if guard.loop.hears(module):
            return
        if is_compiled(module):
            self._compiled = True
            self._disarm()
        guard.add(module)
        self._again = max(self._again - 1, 0)  # it was worth it
        guard.loop.forward_start(module, args, {})  # this call's own hooks were collected before ours were there

    @shielded
    def _after(self, module: nn.Module, args: Any, output: object) -> None:
        if in_transform() or os.getpid() != self._pid:
            return
        if get_ident() != self._thread:
            is_whole = self._elsewhere.leave() and not self._depth  # else a part of what the guarded thread calls
            if is_whole and module.training and torch.is_grad_enabled() and not self._is_guarded():
                self._elsewhere.follow(module, output)
            return
        self._depth = max(self._depth - 1, 0)

    def _is_idle(self) -> bool:
        """Whether no model was called on the guarded thread, or that is over."""
        if self._guard is not None and not self._is_guarded():
            return self._guard.loop.is_idle()
        return self._guard is None and not self._depth

    def _moves_here(self) -> bool:
        """Whether this thread, which trained while the guarded one was idle, is the guarded one from now on."""
        if self._elsewhere.trains_on != get_ident() or not self._is_idle():
            return False
        self._thread, self._depth = get_ident(), 0
        if self._guard is not None:
            self._guard.session.move_here()
        else:
            self._elsewhere.moved()
        return True

    def _backward(self, losses: Sequence[torch.Tensor]) -> None:
        if in_transform() or get_ident() != self._thread or os.getpid() != self._pid:
            return
        if self._is_guarded():
            self._backwards.remove()
        else:
            self._begin().loop.bare_backward(losses)

    def _derivative(self, outputs: Sequence[torch.Tensor]) -> None:
        """A derivative with a graph is taken in a program without modules: no batch, but a graph to follow."""
        if self._guard is None or in_transform() or get_ident() != self._thread or os.getpid() != self._pid:
            return
        if not self._is_guarded():
            for output in outputs:
                self._guard.session.backward_start(output)

    def _strange_backward(self, losses: Sequence[torch.Tensor]) -> None:
        """A backward after the first batches: with a known model's forward a batch of training would have begun."""
        if self._guard is None:
            return
        recorder = self._guard.session.recorder
        row = recorder.row
        if row.batch != self._batch:
            self._batch, self._in_batch = row.batch, 0
        self._in_batch += 1
        if row.is_open and row.thread == get_ident() and self._in_batch % MANY:
            return  # a batch of the loop that repeats itself: its forward was heard
        if in_transform() or get_ident() != self._thread or os.getpid() != self._pid:
            return
        if self._again >= MAX_AGAIN or self._is_guarded():
            self._strange.remove()
            return
        models = len(self._guard.models)
        is_gone, self._models = models < max(self._models, 1), models
        is_known = recorder.batch_is_open and recorder.stage is Stage.TRAIN and not is_gone
        if not is_known or self._in_batch % MANY == 0:
            if is_gone or not recorder.batch_is_open:
                self._guard.loop.bare_backward(losses)  # its forward was not heard: the first batch of a later model
            self._look_again()

    def _backward_failed(self, error: Exception) -> None:
        self._begin().part_failed("backwards", error)

    def _step_aside(self) -> None:
        """The program has a guard of its own: what was found until now is told there, and not here besides."""
        if self._guard is not None:
            for model in self._guard.models:
                self._guard.loop.drop(model)
        self._disarm()
        self._strange.remove()
        self._strange = BackwardCalls(self._strange_backward, self._backward_failed)  # what was removed stays silent
        self._is_aside = True

    def _own_opened(self) -> None:
        """A guard of the program's own begins, before a further batch of ours could end."""
        if self._is_aside or (self._guard is not None and self._guard.loop.is_in_forward):
            return  # of an open forward the end must be heard: it is left after its batch
        if self._is_guarded():
            self._step_aside()

    def _own_closed(self, summary: Summary) -> None:
        """A guard of the program's own is gone: its models are whoever's calls them next."""
        if self._is_aside and not self._is_guarded():
            self._is_aside = False
            self._arm()
            if self._is_past_dense and not self._compiled:
                self._strange.install()

    def _after_batch(self) -> bool:
        """A batch has ended, or some on the fast path. Whether the end of the next one must be heard."""
        guard = self._guard
        if guard is None:
            return False
        if self._is_guarded():
            if not guard.loop.is_in_forward:  # else its end would not be heard
                self._step_aside()
            return True
        if guard.session.recorder.batch < DENSE_BATCHES:
            return False
        if not self._is_armed:
            if guard.session.recorder.batch - self._disarmed_at >= INTERVAL:
                self._armed_until = guard.session.recorder.batch + 1
                self._arm()
            return self._is_armed
        if guard.session.recorder.batch < self._armed_until:
            return True
        self._disarm()
        if not self._is_past_dense and not self._compiled:
            self._strange.install()
        self._is_past_dense, self._disarmed_at = True, guard.session.recorder.batch
        return False

    def _look_again(self) -> None:
        """There may be a model that is not known; where no known one is called any more, no batch would ever end."""
        if self._is_past_dense and self._again < MAX_AGAIN:
            self._again += 1
            self._arm()
            if self._guard is not None:
                recorder = self._guard.session.recorder
                self._armed_until = recorder.batch + INTERVAL
                recorder.row.force_slow_path()


def _nothing(caller: FrameType | None, seconds: float) -> None:
    """Holds the stand-ins of empty_cache in place from before the program binds their names."""


def run_script(
    target: str, arguments: Sequence[str], options: dict[str, Any], *, module: bool, owns_process: bool = False
) -> tuple[int, list[Summary]]:
    """Runs a script or module as its own main program, guarded.

    Args:
        target: Path of the script, or name of the module.
        arguments: The script's own.
        options: Settings by name, as given on the command line.
        module: Whether the target is a module.
        owns_process: Whether the process was started for the script: then it stays the main program, with its
            arguments and its path, until the process ends.

    Returns:
        The script's exit code (-2 for KeyboardInterrupt, after which Python ends with SIGINT), and the summary of each
        guarded run in it and in the processes that it started.

    Raises:
        ValueError: There is no such script, or no such device in this build of PyTorch.
    """
    if not module and not Path(target).is_file():
        raise ValueError(f"there is no script {target!r}; give the path of a Python file, or -m MODULE")
    checked = Options.make(**options)
    if disabled():
        return execute(target, arguments, module=module, owns_process=owns_process)[0], []
    choose_backend(checked.device)  # else the first model that the script calls would find out
    program, started = GuardedProgram(checked, told=options), StartedProcesses(options)
    with contextlib.ExitStack() as last:
        last.callback(lambda: program.summaries.extend(started.remove()))
        last.callback(program.end, "finished")
        program.begin()
        started.install()
        code, reason = execute(target, arguments, module=module, owns_process=owns_process)
        program.end(reason)
    if owns_process and not module:
        vars(sys.modules["__main__"]).pop("__file__", None)  # as Python does once a script is over
    return code, program.summaries


@final
class GuardedProgram:
    """This process under guard from `begin` to `end`: whatever models it calls, and each Lightning Trainer it makes.

    Args:
        options: The settings; validation should be "warn" or "off", for code that is only observed.
        told: The settings by name, for the callback in each Trainer; None takes all of ``options``.
    """

    def __init__(self, options: Options, *, told: dict[str, Any] | None = None) -> None:
        self.summaries: list[Summary] = []
        """What each guarded run in it came to; complete after `end`."""
        self._guard = ScriptGuard(options)
        self._told = json.dumps(
            {**(asdict(options) if told is None else told), "quiet": True, "discreet": False}, default=str
        )
        self._last = contextlib.ExitStack()

    def begin(self) -> None:
        """Guards the process."""
        self._last.enter_context(_environment({"MEMGUARD": "1", OPTIONS_VARIABLE: self._told}))
        on_close.append(self.summaries.append)
        self._last.callback(on_close.remove, self.summaries.append)
        self._guard.install()

    def end(self, reason: str) -> None:
        """Ends the runs that are open and leaves the process alone; a second call does nothing.

        Args:
            reason: Why, like ``"finished"``.
        """
        with self._last:
            self._guard.remove(reason)


@contextlib.contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
