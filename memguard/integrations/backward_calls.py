"""Backwards of a program without modules: plain tensors with gradients, which no forward hook ever sees."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, final

import torch


@final
class BackwardCalls:
    """Stands in for ``torch.autograd.backward`` while installed (``Tensor.backward`` calls it too), and calls it.

    Args:
        listener: Told the root tensors before each backward; what it raises ends the telling.
        failed: Told of that exception; must not keep it.
    """

    def __init__(self, listener: Callable[[Sequence[torch.Tensor]], None], failed: Callable[[Exception], None]) -> None:
        self._listener: Callable[[Sequence[torch.Tensor]], None] | None = listener
        self._failed = failed
        self._original: Any = None
        self._ours: Any = None

    def install(self) -> None:
        """Puts the stand-in in place."""
        if self._original is None:
            self._original, self._ours = torch.autograd.backward, self._stand_in(torch.autograd.backward)
            torch.autograd.backward = self._ours

    def remove(self) -> None:
        """Puts the original back, unless somebody else replaced it since; the stand-in then only passes on."""
        self._listener = None
        if self._original is not None and torch.autograd.backward is self._ours:
            torch.autograd.backward = self._original
        self._original = self._ours = None

    def _stand_in(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            if self._listener is not None:
                self._tell((tensors,) if isinstance(tensors, torch.Tensor) else tensors)
            return original(tensors, *args, **kwargs)

        backward.__doc__ = original.__doc__
        return backward

    def _tell(self, tensors: Any) -> None:
        try:
            if self._listener is not None and type(tensors) in (tuple, list):
                self._listener([tensor for tensor in tensors if isinstance(tensor, torch.Tensor)])
        except torch.OutOfMemoryError:
            raise  # the virtual device begins here, and what is there already does not fit: the user's business
        except Exception as error:
            self._listener = None
            self._failed(error)
