"""Models that no front door was given and the program calls: a teacher, a reference, a frozen encoder.

They are heard while batches are looked at, through hooks on all modules, which are not there otherwise. Probes hear of
their forwards; which batch is open they do not change, and the validation guard leaves them alone.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, final

from torch import nn

from memguard.evidence.dispatcher import ProbeDispatcher
from memguard.evidence.graphs.graph_marks import is_compiled
from memguard.evidence.guarded_hook import Hook, in_backward
from memguard.evidence.interface import ProbeContext
from memguard.heap.weak_keys import WeakIdentityDict
from memguard.torch_objects.hidden_hooks import HiddenHook
from memguard.torch_objects.module_parts import parameters_of, parts_of

MOST_MODELS = 64


@final
class OtherModels:
    """Hears of the outermost forwards of models that are not the front door's.

    Args:
        watch: Knows the door's models.
        probes: Told of the forwards.
        is_foreign: Whether the running code is none that is watched.
        add: Told of each model, once.
        failed: Told of an exception in the hooks, after which nothing is heard any more.
    """

    def __init__(
        self,
        watch: ProbeContext,
        probes: ProbeDispatcher,
        is_foreign: Callable[[], bool],
        add: Callable[[nn.Module], None],
        failed: Callable[[Exception], None],
    ) -> None:
        self._watch, self._probes, self._is_foreign, self._add, self._failed = watch, probes, is_foreign, add, failed
        self._hooks = [
            HiddenHook(None, Hook(self._before, self._give_up), before=True),
            HiddenHook(None, Hook(self._after, self._give_up), always=True),
        ]
        self._doors: WeakIdentityDict[nn.Module, bool] = WeakIdentityDict()
        self._known: WeakIdentityDict[nn.Module, bool] = WeakIdentityDict()
        """Whether a model's forwards are told; not those of what wraps one of the door's, or is compiled."""
        self._found = self._depth = 0
        self._told = False
        """Whether the outermost forward that is open was."""
        self._listens = False
        self._is_off = True
        self._end: HiddenHook | None = None
        """On a model of the door's whose forward is open: nothing within it is heard until its end."""

    def begin(self) -> None:
        """The run begins."""
        self._is_off = False
        self.listen(True)

    def remove(self) -> None:
        """The run is over; a second call does nothing."""
        self._is_off = True
        self._listens = True
        self.listen(False)

    def leave(self, model: nn.Module) -> None:
        """One of the door's own, of whose forwards the door tells."""
        self._doors[model] = True

    def opened(self, model: nn.Module) -> None:
        """A forward of the door's begins, maybe in a batch whose start put the hooks on in the middle of that call."""
        if self._listens and self._end is None:
            self._rest_until_end(model)

    def listen(self, wanted: bool) -> None:
        """Whether the forwards to come are to be heard."""
        wanted = wanted and not (self._is_off or _compiles())
        if wanted is self._listens:
            return
        self._listens, self._depth = wanted, 0
        for hook in self._hooks:
            if wanted:
                hook.put_on()
            else:
                hook.remove()

    def _before(self, module: nn.Module, args: Any) -> None:
        if self._is_foreign():
            return
        self._depth += 1
        if self._depth > 1:
            return
        if is_compiled(module):
            self.remove()  # what is compiled is not to see these hooks
        elif module in self._doors:
            self._rest_until_end(module)
        elif not in_backward() and self._is_told(module):
            self._told = True
            self._probes.forward_start(module, args, {})

    def _rest_until_end(self, model: nn.Module) -> None:
        """Hooks on all modules cost a frame of the stack for each open module, which a deep model may not have."""
        for hook in self._hooks:
            hook.rest()
        self._end = HiddenHook(model, Hook(self._resume, self._give_up), always=True)
        self._end.put_on()

    def _resume(self, module: nn.Module, args: Any, output: object) -> None:
        if self._end is None or self._is_foreign():
            return
        self._end.rest()
        self._end, self._depth = None, 0
        if self._listens:
            for hook in self._hooks:
                hook.put_on()

    def _after(self, module: nn.Module, args: Any, output: object) -> None:
        if self._is_foreign():
            return
        self._depth = max(self._depth - 1, 0)
        if not self._depth and self._told:
            self._told = False
            self._probes.forward_end(module, args, output)

    def _is_told(self, module: nn.Module) -> bool:
        known = self._known.get(module)
        if known is None and self._found < MOST_MODELS:
            known = self._known[module] = self._is_other(module)
            if known:
                self._found += 1
                self._add(module)
        return bool(known)

    def _is_other(self, module: nn.Module) -> bool:
        if next(parameters_of(module), None) is None:
            return False
        return not any(part in self._doors or is_compiled(part) for part in parts_of(module))

    def _give_up(self, error: Exception) -> None:
        self.remove()
        self._failed(error)


def _compiles() -> bool:
    """Whether the program compiles anything by Dynamo, which would compile anew as hooks come and go."""
    dynamo: Any = sys.modules.get("torch._dynamo.eval_frame")
    backends = getattr(dynamo, "cached_backends", None) or {}  # private; checked in torch 2.13
    return any(backend is not None for backend in list(backends.values()))  # None is that of what is never compiled
