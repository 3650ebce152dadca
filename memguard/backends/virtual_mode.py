"""The dispatch mode of the virtual GPU: sees every operator of its thread.

``TorchDispatchMode`` is public; its class methods ``is_infra_mode`` and ``ignore_compile_internals`` were checked with
torch 2.13 and 2.15, older versions do not ask for them.
"""

from __future__ import annotations

import functools
import logging
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any, final

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode

from memguard.allocator import OutOfMemory
from memguard.backends.storages import Storages
from memguard.forks import process
from memguard.torch_objects.hidden_hooks import skipped_by_dynamo
from memguard.torch_objects.storages import dispatches_itself

logger = logging.getLogger("memguard")


_TRACERS: tuple[Any, ...] = tuple(
    getattr(getattr(torch._C, "_TorchDispatchModeKey", None), name, None) for name in ("FAKE", "PROXY", "FUNCTIONAL")
)  # checked in torch 2.13


def _is_traced() -> bool:
    """Whether torch.export or the like runs operators on stand-ins: then their modes, below ours, must see them."""
    return any(key is not None and torch._C._get_dispatch_mode(key) is not None for key in _TRACERS)


_frames: Any = getattr(getattr(torch._C, "_dynamo", None), "eval_frame", None)
_SKIPS = hasattr(_frames, "set_code_exec_strategy")
"""Whether a mark on our code keeps torch.compile out of all that it calls."""


def _left_alone(function: Callable[..., Any]) -> Callable[..., Any]:
    """Code that torch.compile does not follow: where it compiles what operators lead to, it would compile ours.

    Torch wraps a mode's method in two functions for that (since 2.7; in 2.4 nothing does it). They cost a quarter of
    what a mode costs at least; a mark on the code costs nothing.
    """
    if _SKIPS:
        return skipped_by_dynamo(function)
    if _frames is None or hasattr(TorchDispatchMode, "is_infra_mode"):
        return function

    def unfollowed(*args: Any, **kwargs: Any) -> Any:
        callback = _frames.set_eval_frame(None)
        try:
            return function(*args, **kwargs)
        finally:
            _frames.set_eval_frame(callback)

    _frames.skip_code(unfollowed.__code__)
    return functools.wraps(function)(unfollowed)


@final
class VirtualMode(TorchDispatchMode):
    """Every operator of the thread that entered it, as the virtual GPU sees it.

    An operator that needs more memory than there is raises; its results are gone by then. Operators of tensors that
    dispatch themselves are left to them, and what those call is seen. In a forked process (a DataLoader's worker) and
    after `close`, operators pass through.

    Args:
        storages: Where the storages are followed.
        failing: Called just before an out-of-memory error is raised; must not raise.
    """

    supports_higher_order_operators = True

    def __init__(self, storages: Storages, failing: Callable[[], None] = lambda: None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._see_all, self._failing = storages.see_all, failing
        self.failed_bytes: int | None = None
        """What the driver was last asked for in vain."""
        self._pid = process.pid
        self.is_open = True
        """Whether it looks at operators."""

    @classmethod
    def is_infra_mode(cls) -> bool:
        """Yes: ``torch.compile`` compiles as it would without us, and we see what its code runs."""
        return True

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Yes, for the same reason."""
        return True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Whether torch is to wrap `__torch_dispatch__`; private, checked in torch 2.13."""
        return not _SKIPS

    def close(self) -> None:
        """From now on every operator passes through."""
        self.is_open = False

    @_left_alone
    def __torch_dispatch__(
        self, func: Any, types: Iterable[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if not self.is_open or process.pid != self._pid:
            return func(*args, **kwargs) if kwargs else func(*args)
        for kind in types:
            if dispatches_itself(kind):
                return func(*args, **kwargs or {}) if _is_traced() else NotImplemented
        out = text = None
        see_all = self._see_all
        try:
            see_all((*args, *kwargs.values()) if kwargs else args)
        except Exception as error:
            text = self._reason(error)
        if text is None:
            out = func(*args, **kwargs) if kwargs else func(*args)
            try:
                see_all((out,), given=True)
            except Exception as error:
                text = self._reason(error)
            if text is None:
                return out
        self._failing()  # here the results that fitted are still alive, as those of foreach and fused optimizers
        out = None  # the traceback holds this frame, and must not hold what did not fit
        raise torch.OutOfMemoryError(text)

    def _reason(self, error: Exception) -> str | None:
        """What the operator fails with: the text of the device that has no room; None after a failure of ours.

        As text: a traceback that is kept keeps tensors.
        """
        if isinstance(error, OutOfMemory):
            self.failed_bytes = error.alloc_bytes
            return str(error)
        self.is_open = False
        logger.error("memguard: the virtual GPU failed and follows no tensors any more; please report: %r", error)
        return None


@final
class EnteredMode:
    """Enters a mode in the calling thread, and leaves it when the thread's own variables go.

    Left to itself, torch drops what is on the thread's stack after the thread has left the interpreter. It takes the
    GIL for that, and where the interpreter ends at the same time, this aborts the process.
    """

    def __init__(self, mode: VirtualMode) -> None:
        self._mode, self._thread = mode, threading.get_ident()
        mode.__enter__()  # type: ignore[no-untyped-call]

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if is_finalizing() or threading.get_ident() != self._thread:
            return
        if _get_current_dispatch_mode() is self._mode:
            self._mode.__exit__(None, None, None)  # type: ignore[no-untyped-call]
