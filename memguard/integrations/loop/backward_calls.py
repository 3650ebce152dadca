"""Backwards of programs without modules, which no forward hook sees."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, final

import torch

_listening: list[BackwardCalls] = []
"""Who hears of backwards: `BackwardCalls.install` adds, `BackwardCalls.remove` takes away."""
_in_place: dict[str, tuple[Any, Any]] = {}
"""torch's functions and the one stand-in for each, while anybody listens; so guards may end in any order."""


@final
class BackwardCalls:
    """Hears ``torch.autograd.backward`` while installed, which ``Tensor.backward`` calls too.

    Args:
        listener: Told the root tensors before each backward; what it raises ends the telling.
        failed: Told of that exception; must not keep it.
        derivatives: Told likewise before each ``torch.autograd.grad`` that builds a graph of its own.
    """

    def __init__(
        self,
        listener: Callable[[Sequence[torch.Tensor]], None],
        failed: Callable[[Exception], None],
        derivatives: Callable[[Sequence[torch.Tensor]], None] | None = None,
    ) -> None:
        self._listener: Callable[[Sequence[torch.Tensor]], None] | None = listener
        self._failed, self._derivatives = failed, derivatives

    def install(self) -> None:
        """Listens; the first to do so puts the stand-in in place."""
        if self not in _listening:
            _listening.append(self)
        if not _in_place:
            for name, make in (("backward", _stand_in), ("grad", _stand_in_of_grad)):
                original = getattr(torch.autograd, name)
                _in_place[name] = original, make(original)
                setattr(torch.autograd, name, _in_place[name][1])

    def remove(self) -> None:
        """Listens no more; the last one puts the original back, unless somebody else replaced it since."""
        self._listener = self._derivatives = None
        if self in _listening:
            _listening.remove(self)
        for name, (original, ours) in () if _listening else tuple(_in_place.items()):
            if getattr(torch.autograd, name) is ours:
                setattr(torch.autograd, name, original)
            _in_place.pop(name, None)  # last: what an interrupt leaves can be put back by a second call

    def tell(self, tensors: Any, *, derivative: bool = False) -> None:
        """A backward begins from these."""
        try:
            listener = self._derivatives if derivative else self._listener
            if listener is not None and type(tensors) in (tuple, list):
                listener([tensor for tensor in tensors if isinstance(tensor, torch.Tensor)])
        except torch.OutOfMemoryError:
            raise  # the virtual device begins here, and what is there already does not fit: the user's business
        except Exception as error:
            self._listener = self._derivatives = None
            self._failed(error)


def _stand_in(original: Callable[..., Any]) -> Callable[..., Any]:
    def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
        if _in_place and _in_place["backward"][1] is backward:  # else a former one, that somebody else's still calls
            roots = (tensors,) if isinstance(tensors, torch.Tensor) else tensors
            for listening in tuple(_listening):
                listening.tell(roots)
        return original(tensors, *args, **kwargs)

    backward.__doc__ = original.__doc__
    return backward


def _stand_in_of_grad(original: Callable[..., Any]) -> Callable[..., Any]:
    def grad(outputs: Any, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("create_graph") and _in_place and _in_place["grad"][1] is grad:
            roots = (outputs,) if isinstance(outputs, torch.Tensor) else outputs
            for listening in tuple(_listening):
                listening.tell(roots, derivative=True)
        return original(outputs, *args, **kwargs)

    grad.__doc__ = original.__doc__
    return grad
