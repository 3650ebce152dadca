"""GPUs that user code names by a number, as in ``model.to(rank)``, or not at all: without a GPU, PyTorch knows none."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, final

import torch
from torch.overrides import TorchFunctionMode

if TYPE_CHECKING:
    from memguard.forecast.tracer import Tracer


@final
class AutocastInputs(TorchFunctionMode):
    """Inside autocast, numbers on the host become those of the fake GPU before autocast looks at them."""

    def __init__(self, tracer: Tracer) -> None:
        super().__init__()
        self._tracer = tracer

    def __torch_function__(
        self, func: Any, types: Iterable[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        tracer = self._tracer
        if torch.is_autocast_enabled("cuda"):
            for value in args:
                if isinstance(value, torch.Tensor) and value.is_floating_point() and value.device.type == "cpu":
                    if not tracer.sites.in_host_code(sys._getframe(1)):
                        args = tuple(tracer.moved(value) for value in args)
                    break
        return func(*args, **(kwargs or {}))


_PLACES: dict[Any, int] = {torch.device: 0, torch.Tensor.to: 1}
"""Where a device stands among what is given by position."""


@final
class GpuNumbers(TorchFunctionMode):
    """Numbers that stand for devices become those of CUDA devices."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = False
        """Whether there was one."""
        parser: Any = getattr(torch._C, "_nn")  # noqa: B009 - the stubs give it no functions
        parser._parse_to = self._parsing(parser._parse_to)  # of nn.Module.to; it asks no mode

    def __torch_function__(
        self, func: Any, types: Iterable[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if type(kwargs.get("device")) is int:
            kwargs = {**kwargs, "device": self._device(kwargs["device"])}
        place = _PLACES.get(func)
        if place is not None and len(args) > place and type(args[place]) is int:
            args = (*args[:place], self._device(args[place]), *args[place + 1 :])
        return func(*args, **kwargs)

    def _parsing(self, parse: Callable[..., Any]) -> Callable[..., Any]:
        def parse_number(*args: Any, **kwargs: Any) -> Any:
            if args and type(args[0]) is int:
                args = (self._device(args[0]), *args[1:])
            if type(kwargs.get("device")) is int:
                kwargs = {**kwargs, "device": self._device(kwargs["device"])}
            return parse(*args, **kwargs)

        return parse_number

    def _device(self, number: int) -> torch.device:
        self.seen = True
        return torch.device(f"cuda:{number}")
