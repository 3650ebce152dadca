"""Hooks of the callback that have nothing to do are removed from the Trainer's per-batch calls.

Lightning calls every hook of every callback, also those that do nothing, each inside a span of its profiler; that takes
more time than what most of ours do in a batch that nobody looks at. A hook that is None is passed over.
"""

from __future__ import annotations

import sys
from typing import Any, Final, final

_UNUSED: Final = ("on_before_zero_grad", "on_before_optimizer_step")
_PAUSED: Final = ("on_before_backward", "on_after_backward")


@final
class MutedHooks:
    """Hides hooks of one callback from one Trainer, by None in the callback's own attributes.

    A subclass of the user's keeps the hooks that it defines itself.
    """

    def __init__(self, callback: Any, own: type[Any], trainer: Any) -> None:
        self._attributes: dict[str, Any] = vars(callback)
        kind, skips = type(callback), _skips_none(trainer)
        self._paused = [name for name in _PAUSED if skips and getattr(kind, name) is getattr(own, name)]
        self._unused = [name for name in _UNUSED if skips and _is_lightnings(kind, name)]
        self._attributes.update(dict.fromkeys(self._unused))
        self.is_calm = False
        """Whether those around the backward are hidden."""

    def calm(self, now: bool) -> None:
        """A batch begins that is looked at, or not."""
        if now == self.is_calm:
            return
        self.is_calm = now
        if now:
            self._attributes.update(dict.fromkeys(self._paused))
        else:
            self._show(self._paused)

    def remove(self) -> None:
        """All hooks are there again."""
        self._show([*self._unused, *self._paused])

    def _show(self, names: list[str]) -> None:
        for name in names:
            self._attributes.pop(name, None)


def _skips_none(trainer: Any) -> bool:
    """Whether this Lightning passes over a hook that is not callable; checked in Lightning 2.2 and 2.6."""
    module = sys.modules.get(type(trainer).__module__.rpartition(".")[0] + ".call")
    code = getattr(getattr(module, "_call_callback_hooks", None), "__code__", None)
    return code is not None and "callable" in code.co_names


def _is_lightnings(kind: type[Any], name: str) -> bool:
    """Whether a hook is the one of Lightning's own Callback, which does nothing."""
    owner = next((cls for cls in kind.__mro__ if name in vars(cls)), None)
    return owner is not None and owner.__name__ == "Callback" and owner.__module__.endswith("callbacks.callback")
