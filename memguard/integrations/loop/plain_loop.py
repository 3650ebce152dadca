"""A plain loop that is watched: what it does, as events for the session."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Sequence
from threading import get_ident
from typing import Any, final

import torch
from torch import nn

from memguard.evidence.guarded_hook import Hook
from memguard.evidence.shapes import describe_shapes
from memguard.guards.no_grad import graphs_of
from memguard.heap.containers import tensors_in
from memguard.heap.roots import submodules_of
from memguard.heap.weak_keys import WeakIdentityDict
from memguard.integrations.loop.backward_calls import BackwardCalls
from memguard.integrations.loop.compiled import compiled_wrappers
from memguard.integrations.loop.fast_path import FastPath
from memguard.integrations.loop.fast_path_hooks import ForwardEnd, ForwardStart
from memguard.integrations.loop.hooks import OpenForwards, RootHooks, can_be_called
from memguard.integrations.loop.inference import BatchInference
from memguard.integrations.loop.running_code import may_train, names_evaluation
from memguard.integrations.loop.steps import steps_under_way
from memguard.integrations.loop.wrapped_models import InnerHooks, inner_models
from memguard.integrations.never_raises import shielded
from memguard.integrations.progress import BatchLine
from memguard.integrations.session import Session, open_sessions
from memguard.records.stats import Stage
from memguard.torch_objects.hidden_hooks import without_number
from memguard.torch_objects.storages import storages_of

logger = logging.getLogger("memguard")


_LOOKS = 16
"""Batches that are sampled from the one on after which no backward is waited for."""
_MOST_NOTED = 64


@final
class PlainLoop:
    """Hears the forwards and steps of guarded models, and tells the session of batches and stages.

    Args:
        session: What it guards the process with.
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self._hooks: WeakIdentityDict[nn.Module, RootHooks] = WeakIdentityDict()
        self._inner: WeakIdentityDict[nn.Module, InnerHooks] = WeakIdentityDict()
        self._wholes: WeakIdentityDict[nn.Module, int] = WeakIdentityDict()
        """Of models inside wrappers the wrapper's identity: which of the two is called, it is one model."""
        self._has_wholes = False
        self._parts: set[int] | None = None
        self._forwards_open = OpenForwards()
        self._forwards = 0
        self._epoch: int | None = None
        self._inputs: tuple[Any, ...] = ()
        """Those of the forward that begins."""
        self._evaluated: list[weakref.ref[torch.Tensor]] = []
        """First inputs and answers in the open batch, as far as it evaluates."""
        self._steps_before = 0
        """Optimizer steps before the outermost `batches` loop that is open."""
        self.was_entered = False
        """Whether its guard was opened, even where that failed."""
        self._looked_for_compiled = False
        self._inference = BatchInference(self, steps_under_way, may_train)
        self._hear_backward = Hook(self._backward, self.hook_failed)
        self._losses: BackwardCalls | None = None
        self._express = session.express = FastPath(session, self._inference, self._forwards_open, self, self.enter)
        session.on_step = (self._step_start, self._step_end)
        session.watch.elsewhere.is_idle = self.is_idle

    @property
    def models(self) -> list[nn.Module]:
        """The guarded root models that are still alive."""
        return self._hooks.keys()

    @property
    def is_in_forward(self) -> bool:
        """Whether a guarded model is being called right now, as far as its hooks know."""
        return self._forwards_open.depth > 0 or self._express.is_inside

    def is_idle(self) -> bool:
        """Whether nothing happened on the guarded thread so far, or it is over."""
        recorder = self.session.recorder
        return not (self._forwards or recorder.batch or recorder.batch_is_open) or self.session.thread_is_over

    @shielded
    def add(self, model: nn.Module) -> None:
        """Hears of one more root model; a second call with the same one does nothing."""
        if model in self._hooks:
            return
        self._express.forget()
        self._parts = None
        if (inside := self._inner.pop(model)) is not None:
            inside.remove()
        probes = self.session.probes
        hooks = ForwardStart(self._express, probes), ForwardEnd(self._express, probes)
        self._hooks[model] = RootHooks(model, self._express, hooks)
        self._inference.hears_forwards = any(map(can_be_called, self.models))
        self.session.add_model(model)
        for inner in inner_models(model):
            self._wholes[inner] = self._number_of(model)
            self._has_wholes = True
            self.session.validation.wraps(model, inner)
            self.session.others.leave(inner)
            if not self.hears(inner):
                self._inner[inner] = InnerHooks(inner, self._express)

    def hears(self, model: nn.Module) -> bool:
        """Whether a model's forwards are told: a guarded one's, or those of one in a wrapper that is guarded."""
        return model in self._hooks or model in self._inner

    def leave_inner(self, wrapper: nn.Module | None = None) -> None:
        """Takes the hooks off what a wrapper wraps; without one, off all that is wrapped."""
        for inner in self._inner.keys() if wrapper is None else inner_models(wrapper):
            if (hooks := self._inner.get(inner)) is not None:
                hooks.remove()
                self._inner.pop(inner)

    def leave_losses(self) -> None:
        """Backwards are not listened to any more."""
        if self._losses is not None:
            self._losses.remove()
            self._losses = None

    def drop(self, model: nn.Module) -> bool:
        """Takes the hooks off one model; whether it had any."""
        hooks = self._hooks.get(model)
        if hooks is None:
            return False
        self._express.forget()
        self._parts = None
        hooks.remove()
        self.leave_inner(model)
        self._hooks.pop(model)
        return True

    @shielded
    def end(self) -> None:
        """The loop is over, with its open batch and its stages."""
        self._leave_express()
        self._inference.end()
        for stage in (Stage.VALIDATION, Stage.PREDICT, Stage.TRAIN):
            self.session.stage_end(stage)

    def part_failed(self, name: str, error: Exception) -> None:
        """Something raised where the loop calls us."""
        self.session.recorder.failed(name, error)

    # Forwards, told by RootHooks where they do not go the short way

    def forward_start(self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A root model is called."""
        session = self.session
        if session.is_foreign() and not self._moves_here():
            session.watch.elsewhere.start()
            return
        if self._forwards_open.depth:
            self._look_for_interrupt(in_hook=True)
        self._forwards += 1
        session.phase_methods.forward()
        if self._forwards_open.enter():
            recorder = session.recorder
            try:
                training = model.training and torch.is_grad_enabled()
                part = not training and self._is_part(model)
                values = model.training and not training
                number = self._number_of(model) if self._has_wholes else id(model)
                self._inputs = args
                self._inference.forward(
                    number,
                    training=training,
                    part=part,
                    values=values,
                    evaluates=names_evaluation,
                    shares=self._shares,
                )
                self._inputs = ()
                if not training:
                    self._note(args)
                recorder.shapes_once(describe_shapes, args or kwargs)
            except Exception as error:
                recorder.failed("batch inference", error)
        if session.calm.is_on and session.calm.passes(model):
            return
        session.forward_start(model, args, kwargs)

    def forward_end(self, model: nn.Module, args: tuple[Any, ...], output: object) -> None:
        """A root model has answered."""
        if self.session.is_foreign():
            self.session.watch.elsewhere.end(model, output)
            return
        outermost = self._forwards_open.leave()
        session = self.session
        if outermost and not model.training:
            self._note((output,))
        if not (session.calm.under_way and session.calm.passed(model, output)):
            session.forward_end(model, args, output)
        if outermost and output is not None and self._inference.needs_backward:
            try:
                if model.training or self._inference.is_stepping:
                    self._listen_for_backward(output)
            except Exception as error:
                self.session.recorder.failed("batch inference", error)

    def hook_failed(self, error: Exception) -> None:
        """A hook of ours raised: all of them fall silent, and gradients are given back."""
        for hooks in self._hooks.values():
            hooks.stop()
        for inner in self._inner.values():
            inner.stop()
        self.session.validation.release()
        self.part_failed("module hooks", error)

    def bare_backward(self, losses: Sequence[torch.Tensor]) -> None:
        """A backward begins in a program of which no module was seen yet."""
        if not self.session.is_foreign():
            self._inference.bare_backward()
            for loss in losses:
                self.session.backward_start(loss)

    # Batches, told by BatchInference

    def enter(self, stage: Stage) -> None:
        """The loop goes into a stage; evaluation lies inside training."""
        for other in (Stage.VALIDATION, Stage.PREDICT):
            if other is not stage:
                self.session.stage_end(other)
        if not self.session.in_stage(stage):
            self.session.stage_start(stage, epoch=self._epoch)

    def begin(self, index: int | None) -> None:
        """A batch begins."""
        session = self.session
        self._evaluated.clear()
        watch, trains_nothing = session.watch, self._inference.trains_nothing
        if trains_nothing and not watch.trains_nothing:
            watch.look_closely(_LOOKS, surely=True)
        watch.trains_nothing = trains_nothing
        session.batch_start(index)
        self._express.begin(session.recorder.stage)
        if session.probes.hears_losses != (self._losses is not None):
            self._listen_for_losses()

    def finish(self) -> None:
        """The open batch is over."""
        self.session.batch_end()
        self._express.over()

    def stepped(self) -> None:
        """An optimizer has changed weights, and its step goes on."""
        self.session.watch.optimizer_steps += 1
        self._express.unsettle()

    def crowded(self) -> None:
        """The open batch had several forwards without a backward: an evaluation that forgot eval() looks like that."""
        self.session.disturb()
        self.session.probes.look_now()

    # Batches that the loop says itself, told by `Batches`

    @shielded
    def start_batches(self, epoch: int | None) -> None:
        """A `batches` loop begins."""
        self._leave_express()
        self._inference.end()
        self._epoch = epoch
        self.session.recorder.epoch(epoch)
        if not self._inference.explicit:
            self._steps_before = self.session.watch.optimizer_steps
        self._inference.explicit += 1

    @shielded
    def next_batch(self, index: int, batch: object) -> None:
        """A `batches` loop hands out a batch."""
        if self._forwards_open.depth:
            self._look_for_interrupt(in_hook=False)
        models = self.models
        training = any(model.training for model in models) and torch.is_grad_enabled() if models else None
        self._inference.hand_out(index, training=training)
        self.session.recorder.shapes_once(describe_shapes, batch)

    @shielded
    def end_batches(self, *, ran_out: bool) -> None:
        """A `batches` loop is over; one that trained, and had all of its batches, was an epoch."""
        self._inference.end()
        self._inference.explicit -= 1
        self._epoch = None
        if ran_out and not self._inference.explicit and self.session.watch.optimizer_steps > self._steps_before:
            self.session.epoch_end()

    @shielded
    def show(self, line: BatchLine, index: int | None) -> None:
        """A `batches` loop shows where it is; None is its end."""
        if index is None:
            line.end()
        else:
            line.show(index)

    # Inside

    def _backward(self, gradients: object) -> None:
        if torch.is_grad_enabled():  # as the engine has it with create_graph alone
            self._inference.derivative()
        else:
            self._inference.backward()

    def _listen_for_backward(self, output: object) -> None:
        for node in graphs_of(output):
            without_number(node.register_prehook, self._hear_backward)

    def _listen_for_losses(self) -> None:
        """Only while a probe asks for them; in a program without modules backwards are told anyway."""
        if self._losses is not None:
            self.leave_losses()
        elif self._hooks.keys():
            self._losses = BackwardCalls(self._tell_losses, self._losses_failed)
            self._losses.install()

    def _tell_losses(self, losses: Sequence[torch.Tensor]) -> None:
        if not self.session.is_foreign():
            for loss in losses:
                self.session.loss(loss)

    def _losses_failed(self, error: Exception) -> None:
        self.part_failed("losses", error)

    def _number_of(self, model: nn.Module) -> int:
        return self._wholes.get(model, id(model))

    def _note(self, values: tuple[Any, ...]) -> None:
        if values and type(values[0]) is torch.Tensor and len(self._evaluated) < _MOST_NOTED:
            self._evaluated.append(weakref.ref(values[0]))

    def _shares(self) -> bool:
        """Whether the forward that begins is asked of what the open batch's were asked of, or answered."""
        known = [tensor for ref in self._evaluated if (tensor := ref()) is not None]
        return not storages_of(known).keys().isdisjoint(storages_of(tensors_in(self._inputs, 2)))

    def _is_part(self, model: nn.Module) -> bool:
        """Whether a root is a part of another one, and not all of it; asked of evaluated ones alone."""
        if model in self._wholes:
            return False
        if self._parts is None:
            roots = self.models
            self._parts = {id(part) for root in roots for part in submodules_of(root, set()) if part is not root}
        return id(model) in self._parts

    def _moves_here(self) -> bool:
        """Whether this thread, which trained while the guarded one was idle, is the guarded one from now on."""
        session = self.session
        if session.watch.elsewhere.trains_on != get_ident() or not self.is_idle():
            return False
        self._leave_express()
        self._forwards_open.depth = 0
        session.move_here()
        return not session.is_foreign()

    def _leave_express(self) -> None:
        self._express.leave(in_hook=False)
        self._express.unsettle()

    def _look_for_interrupt(self, *, in_hook: bool) -> None:
        if self._forwards_open.interrupted(in_hook=in_hook):
            self.session.validation.interrupted()
            self.session.calm.under_way.clear()

    def _step_end(self) -> None:
        self._inference.step_end(_is_alone)

    def _step_start(self) -> None:
        self._inference.step_start()
        if not self._forwards and not self._looked_for_compiled:
            self._looked_for_compiled = True
            for model in self.models:  # inside torch.compile's wrappers hooks do not run
                for wrapper in compiled_wrappers(model):
                    self.add(wrapper)


def _is_alone() -> bool:
    return len(open_sessions()) == 1
