"""Backwards of programs without modules, which no forward hook sees."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, final

import torch

_listening: list[BackwardCalls] = []
"""Who hears of backwards: `BackwardCalls.install` adds, `BackwardCalls.remove` takes away."""
_in_place: list[tuple[Any, Any]] = []
"""torch's function and the one stand-in for it, while anybody listens; so guards may end in any order."""


@final
class BackwardCalls:
    """Hears ``torch.autograd.backward`` while installed, which ``Tensor.backward`` calls too.

    Args:
        listener: Told the root tensors before each backward; what it raises ends the telling.
        failed: Told of that exception; must not keep it.
    """

    def __init__(self, listener: Callable[[Sequence[torch.Tensor]], None], failed: Callable[[Exception], None]) -> None:
        self._listener: Callable[[Sequence[torch.Tensor]], None] | None = listener
        self._failed = failed

    def install(self) -> None:
        """Listens; the first to do so puts the stand-in in place."""
        if self not in _listening:
            _listening.append(self)
        if not _in_place:
            original = torch.autograd.backward
            ours = _stand_in(original)
            _in_place.append((original, ours))
            torch.autograd.backward = ours

    def remove(self) -> None:
        """Listens no more; the last one puts the original back, unless somebody else replaced it since."""
        self._listener = None
        if self in _listening:
            _listening.remove(self)
        while _in_place and not _listening:
            original, ours = _in_place[-1]
            if torch.autograd.backward is ours:
                torch.autograd.backward = original
            _in_place.clear()

    def tell(self, tensors: Any) -> None:
        """A backward begins from these."""
        try:
            if self._listener is not None and type(tensors) in (tuple, list):
                self._listener([tensor for tensor in tensors if isinstance(tensor, torch.Tensor)])
        except torch.OutOfMemoryError:
            raise  # the virtual device begins here, and what is there already does not fit: the user's business
        except Exception as error:
            self._listener = None
            self._failed(error)


def _stand_in(original: Callable[..., Any]) -> Callable[..., Any]:
    def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
        if _in_place and _in_place[0][1] is backward:  # else it is a former one, that somebody else's still calls
            roots = (tensors,) if isinstance(tensors, torch.Tensor) else tensors
            for listening in tuple(_listening):
                listening.tell(roots)
        return original(tensors, *args, **kwargs)

    backward.__doc__ = original.__doc__
    return backward
