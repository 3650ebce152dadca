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
from memguard.torch_objects.storages import dispatches_itself, unheard

logger = logging.getLogger("memguard")


_TRACERS: tuple[Any, ...] = tuple(
    getattr(getattr(torch._C, "_TorchDispatchModeKey", None), name, None) for name in ("FAKE", "PROXY", "FUNCTIONAL")
)  # checked in torch 2.13


def _is_traced() -> bool:
    """Whether torch.export or the like runs operators on stand-ins: then their modes, below ours, must see them."""
    return any(key is not None and torch._C._get_dispatch_mode(key) is not None for key in _TRACERS)


def _left_alone(function: Callable[..., Any]) -> Callable[..., Any]:
    """What torch.compile does not follow; newer versions of torch leave a mode's code alone by themselves.

    Torch 2.4 compiles whatever Python code operators lead to, also outside what it was asked to compile, and fails in
    ours. ``set_eval_frame`` and ``skip_code`` are private, checked in torch 2.4.
    """
    frames: Any = getattr(getattr(torch._C, "_dynamo", None), "eval_frame", None)
    if frames is None or hasattr(TorchDispatchMode, "is_infra_mode"):
        return function

    def unfollowed(*args: Any, **kwargs: Any) -> Any:
        callback = frames.set_eval_frame(None)
        try:
            return function(*args, **kwargs)
        finally:
            frames.set_eval_frame(callback)

    frames.skip_code(unfollowed.__code__)
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
        self._storages, self._failing = storages, failing
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

    def close(self) -> None:
        """From now on every operator passes through."""
        self.is_open = False

    @_left_alone
    def __torch_dispatch__(
        self, func: Any, types: Iterable[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if not self.is_open or process.pid != self._pid:
            return func(*args, **kwargs)
        for kind in types:
            if dispatches_itself(kind):
                return func(*args, **kwargs) if _is_traced() else NotImplemented
        text, out = self._see((*args, *kwargs.values()) if kwargs else args), None
        if text is None:
            out = func(*args, **kwargs)
            text = self._see((out,), given=True)
            if text is None:
                return out
        self._failing()  # here the results that fitted are still alive, as those of foreach and fused optimizers
        out = None  # the traceback holds this frame, and must not hold what did not fit
        raise torch.OutOfMemoryError(text)

    def _see(self, values: tuple[Any, ...], *, given: bool = False) -> str | None:
        """Shows values to the storages; the text of the failure if there is no room for them."""
        try:
            with unheard():
                self._storages.see_all(values, given=given)
        except OutOfMemory as error:
            self.failed_bytes = error.alloc_bytes
            return str(error)
        except Exception as error:  # as text: a traceback that is kept keeps tensors
            self.is_open = False
            logger.error("memguard: the virtual GPU failed and follows no tensors any more; please report: %r", error)
        return None


@final
class EnteredMode:
    """Enters a mode in the calling thread, and leaves it when the thread's own variables go.

    Left to itself, torch drops what is on the thread's stack after the thread has left the interpreter. It takes the
    GIL for that, and where the interpreter ends at the same time, this aborts the process.

    Args:
        mode: The mode.
    """

    def __init__(self, mode: VirtualMode) -> None:
        self._mode, self._thread = mode, threading.get_ident()
        mode.__enter__()  # type: ignore[no-untyped-call]

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if is_finalizing() or threading.get_ident() != self._thread:
            return
        if _get_current_dispatch_mode() is self._mode:
            self._mode.__exit__(None, None, None)  # type: ignore[no-untyped-call]
