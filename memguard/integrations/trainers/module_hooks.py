"""The hooks on a LightningModule and on those of its parts that a Trainer's loop may call by themselves."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any, final

from torch import nn

from memguard.integrations.loop.hooks import OpenForwards, RootHooks
from memguard.integrations.session import Session

MOST_ROOTS = 16


@final
class ModuleHooks:
    """Hears the forwards of one run: LightningModule.forward is often never called, its children are.

    In the first training batch all of them are listened to; then those that were only called inside another of them
    lose their hooks, for they tell nothing new. Between epochs such parts may be asked for themselves; called inside of
    another one they tell nothing there either.

    Args:
        session: Told of each forward.
        failed: Told of an exception in a hook of ours, with the name of what failed.
    """

    def __init__(self, session: Session, failed: Callable[[str, Exception], None]) -> None:
        self._session, self._failed = session, failed
        self._open = OpenForwards()
        self._parts: list[nn.Module] = []
        """Modules that training only calls inside others."""
        self._between: list[RootHooks] = []
        """The hooks on them, there from the end of an epoch to the next one's start."""
        self._nested: dict[int, bool] = {}
        self._sorting = True
        self._hooks: list[tuple[nn.Module, RootHooks]] = []

    def attach(self, roots: Sequence[nn.Module]) -> None:
        """Hooks the module and its parts, the first `MOST_ROOTS` of them."""
        for root in roots[:MOST_ROOTS]:
            self._hooks.append((root, RootHooks(root, self)))
        for root, _ in self._hooks:
            self._session.add_model(root)

    # Forwards, told by their hooks

    def forward_start(self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A hooked module is called."""
        session = self._session
        if session.calm.passes(model) or session.is_foreign():
            return
        if self._open.depth and self._open.interrupted(in_hook=True):
            session.validation.interrupted()
        outermost = self._open.enter()
        if self._sorting:
            self._nested[id(model)] = self._nested.get(id(model), True) and not outermost
        if outermost or not self._between:
            session.forward_start(model, args, kwargs)

    def forward_end(self, model: nn.Module, args: tuple[Any, ...], output: object) -> None:
        """A hooked module has answered."""
        session = self._session
        if session.calm.passed(model, output) or session.is_foreign():
            return
        if self._open.leave() or not self._between:
            session.forward_end(model, args, output)

    def hook_failed(self, error: Exception) -> None:
        """A hook of ours raised: all of them fall silent, and gradients are given back."""
        for hooks in (*(hooks for _, hooks in self._hooks), *self._between):
            hooks.stop()
        self._parts = []
        self._session.validation.release()
        self._failed("module hooks", error)

    # The Trainer's loop

    def batch_end(self) -> None:
        """A training batch is over."""
        if self._sorting:
            self._keep_outermost()

    def epoch_start(self) -> None:
        """A training epoch begins: parts are called inside others again."""
        while self._between:
            self._between.pop().remove()

    def epoch_end(self) -> None:
        """A training epoch is over; the module's own hook comes after this one, and may draw samples by a part."""
        self._between = self._between or [RootHooks(part, self) for part in self._parts]

    def remove(self) -> None:
        """Takes all hooks away; a second call does nothing."""
        with contextlib.ExitStack() as last:  # even an interrupt in here leaves nothing behind
            last.callback(self.epoch_start)
            for _, hooks in self._hooks:
                last.callback(hooks.remove)
            self._hooks, self._parts = [], []

    def _keep_outermost(self) -> None:
        inner = {key for key, nested in self._nested.items() if nested}
        self._sorting, self._nested = False, {}
        for root, hooks in self._hooks:
            if id(root) in inner:
                hooks.remove()
        self._parts = [root for root, _ in self._hooks if id(root) in inner]
        self._hooks = [(root, hooks) for root, hooks in self._hooks if id(root) not in inner]
