"""Phases that a trainer's own methods name: those of TRL's trainers, and of verl-like ones.

A trainer of reinforcement learning has a method for each part of its step, under names that its libraries share. Once
such an object is seen, these methods of its class are phases, as if each were decorated with `memguard.phase`.
"""

from __future__ import annotations

import functools
import inspect
import sys
import types
from collections.abc import Callable
from typing import Any, Final, final

from torch import nn

import memguard.phases
from memguard.clocks import perf_counter
from memguard.heap.frames import read_locals
from memguard.integrations.never_raises import take_away

NAMES: Final[dict[str, str]] = {
    "_generate_and_score_completions": "experience",
    "make_experience": "experience",
    "make_experience_list": "experience",
    "collect_experience": "experience",
    "collect_rollouts": "rollout",
    "generate_rollouts": "rollout",
    "generate_sequences": "rollout",
    "generate_samples": "rollout",
    "sample_rollouts": "rollout",
    "rollout": "rollout",
    "_generate": "rollout",
    "_calculate_rewards": "rewards",
    "compute_rewards": "rewards",
    "compute_rm_score": "rewards",
    "compute_reward": "rewards",
    "_get_per_token_logps_and_entropies": "log-probs",
    "compute_log_prob": "log-probs",
    "compute_log_probs": "log-probs",
    "compute_ref_log_prob": "reference",
    "compute_ref_log_probs": "reference",
    "compute_values": "values",
    "compute_advantage": "advantages",
    "compute_advantages": "advantages",
    "update_policy": "update",
    "update_actor": "update",
    "update_critic": "critic update",
    "sync_weights": "weight sync",
    "update_weights": "weight sync",
}
"""What a method of that name does in its step: as trainers of TRL, verl, OpenRLHF and the like call it."""
OF_TRL: Final[dict[str, str]] = {"compute_loss": "loss"}
"""Further methods of a trainer of TRL's: a trainer of another kind has them too, and no phases."""
LEAST = 2
"""Methods of these names that make a class a trainer of this kind: one alone may do anything."""
MANY, SHORT_SECONDS = 256, 0.0005
"""Phases of a method after which one that takes less time than that on average is no more one: it is a helper."""
_TORCH_LIKE = ("torch", "transformers", "accelerate", "memguard")
"""Packages whose own classes have no methods that are meant."""
_FRAMES = 32
"""The nearest frames of a forward, in which the trainer is looked for."""
_FORWARDS = 64
"""The first forwards at which it is looked for."""

_in_place: dict[tuple[type, str], _Method] = {}
"""Methods that are phases now: `PhaseMethods.recognize` adds, `PhaseMethods.remove` takes away."""


@final
class _Method:
    """One method of a class, and what stands in for it."""

    def __init__(self, kind: type, name: str, label: str) -> None:
        self._kind, self._name, self._original = kind, name, kind.__dict__[name]
        self.owners: set[PhaseMethods] = set()
        self._calls, self._seconds = 0, 0.0
        self._ours = self._timed(label) if _is_plain(self._original) else memguard.phases.phase(label)(self._original)

    def _timed(self, label: str) -> Callable[..., Any]:
        original, phase = self._original, memguard.phases.phase

        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            began = perf_counter()
            try:
                with phase(label):
                    return original(*args, **kwargs)
            finally:
                self._calls += 1
                self._seconds += perf_counter() - began
                if self._calls == MANY and self._seconds < MANY * SHORT_SECONDS:
                    self.put_back()

        return call

    def put_in_place(self) -> None:
        """The class has ours instead of its own."""
        setattr(self._kind, self._name, self._ours)

    def put_back(self) -> None:
        """The class has its own method again, unless somebody else replaced it since."""
        if self._kind.__dict__.get(self._name) is self._ours:
            setattr(self._kind, self._name, self._original)


@final
class PhaseMethods:
    """Makes phases of the methods of trainers, for one session.

    Args:
        failed: Told an exception of ours; must not keep it. Nothing more is recognized then.
    """

    def __init__(self, failed: Callable[[Exception], None]) -> None:
        self._failed = failed
        self._ours: list[tuple[type, str]] = []
        self._forwards_left = _FORWARDS

    def forward(self) -> None:
        """A forward begins: whether a trainer's method called it."""
        if self._forwards_left <= 0:
            return
        self._forwards_left -= 1
        try:
            self._recognize_callers(sys._getframe(1))
        except Exception as error:
            self._forwards_left = 0
            self._failed(error)

    def recognize(self, trainer: object) -> None:
        """From now on the methods of that object's class are phases, if it is a trainer of this kind."""
        kind = type(trainer)
        if issubclass(kind, nn.Module):
            return  # what compiles a module compiles its methods
        of_trl = any(_package(each) == "trl" for each in kind.__mro__)
        if not of_trl and sum(_where(kind, name) is not None for name in NAMES) < LEAST:
            return
        names = {**NAMES, **OF_TRL} if of_trl else NAMES
        for name, label in names.items():
            if (where := _where(kind, name)) is not None:
                self._put(where, name, label)
        accelerator = getattr(trainer, "accelerator", None) if of_trl else None
        if accelerator is not None and "backward" in type(accelerator).__dict__:
            self._put(type(accelerator), "backward", "backward")

    def remove(self) -> None:
        """All classes have their own methods again."""
        self._forwards_left = 0
        take_away([functools.partial(self._leave, key) for key in self._ours])

    def _leave(self, key: tuple[type, str]) -> None:
        method = _in_place.get(key)
        if method is None:
            return
        method.owners.discard(self)
        if not method.owners:
            method.put_back()
            _in_place.pop(key, None)

    def _put(self, kind: type, name: str, label: str) -> None:
        """From here on `remove` puts back what an interrupt may leave half done."""
        key = kind, name
        if key in self._ours:
            return
        method = _in_place.get(key)
        if method is not None:
            self._ours.append(key)
            method.owners.add(self)
        elif not _is_phase(kind.__dict__[name]):  # decorated by its author
            method = _Method(kind, name, label)
            self._ours.append(key)
            method.owners.add(self)
            _in_place[key] = method
            method.put_in_place()

    def _recognize_callers(self, frame: types.FrameType | None) -> None:
        for _ in range(_FRAMES):
            if frame is None:
                return
            package = str(frame.f_globals.get("__name__")).partition(".")[0]
            if frame.f_code.co_varnames[:1] == ("self",) and package not in _TORCH_LIKE:
                self.recognize(read_locals(frame).get("self"))
            frame = frame.f_back


def _where(kind: type, name: str) -> type | None:
    """The class that has the method of an object of that kind; None where it is nothing to make a phase of."""
    for each in kind.__mro__:
        if name in each.__dict__:
            meant = isinstance(each.__dict__[name], types.FunctionType) and _package(each) not in _TORCH_LIKE
            of_trl = name in OF_TRL and _package(each) == "trl"
            return each if meant or of_trl else None
    return None


def _package(kind: type) -> str:
    return str(kind.__module__).partition(".")[0]


def _is_plain(function: Callable[..., Any]) -> bool:
    return not (
        inspect.iscoroutinefunction(function)
        or inspect.isgeneratorfunction(function)
        or inspect.isasyncgenfunction(function)
    )


def _is_phase(function: types.FunctionType) -> bool:
    """Whether a function is a phase already."""
    return function.__code__.co_filename == memguard.phases.__file__
