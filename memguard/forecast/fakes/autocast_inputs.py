"""Autocast casts what is on the GPU only: inputs of code that names no device must seem to be there."""

from __future__ import annotations

import sys
from collections.abc import Iterable
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
