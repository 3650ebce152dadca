"""Will a training step fit? Traced on fake tensors, simulated to the byte.

The package is also the function: ``memguard.forecast(step, model=..., optimizer=..., device="24GiB")``. So it is one
name whether it was reached as an attribute of memguard or by ``import memguard.forecast``. Loads torch on first use.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

from memguard.options import suggests_names

if TYPE_CHECKING:
    from torch import nn
    from torch.optim.optimizer import Optimizer

    from memguard.forecast.cards import CARDS as CARDS
    from memguard.forecast.cards import Card as Card
    from memguard.forecast.forecasting import forecast as forecast
    from memguard.forecast.forecasting import forecast_of as forecast_of
    from memguard.forecast.result import Forecast as Forecast

_HOMES = {
    "CARDS": "memguard.forecast.cards",
    "Card": "memguard.forecast.cards",
    "Forecast": "memguard.forecast.result",
    "forecast": "memguard.forecast.forecasting",
    "forecast_of": "memguard.forecast.forecasting",
}

__all__ = [*_HOMES]  # pyright: ignore


class _ForecastModule(ModuleType):
    """A module that is called like its main function, `memguard.forecast.forecasting.forecast`."""

    @suggests_names
    def __call__(
        self,
        step: Callable[..., Any] | None = None,
        *,
        model: nn.Module | Callable[..., Any],
        optimizer: Optimizer | Sequence[Optimizer] | None = None,
        device: str | int | None = None,
        steps: int = 3,
        batch: int | None = None,
        torch_version: str | None = None,
        alloc_conf: str | None = None,
        reserved_by_others_bytes: int = 0,
        suggest: bool | None = None,
        cards: Iterable[str] = (),
        nproc: int | None = None,
        nnodes: int = 1,
        meshes: Iterable[Mapping[str, int]] = (),
    ) -> Forecast:
        """What a training step will need on a GPU, and whether it fits; see `forecasting.forecast`."""
        return self.forecast(  # type: ignore[no-any-return]
            step,
            model=model,
            optimizer=optimizer,
            device=device,
            steps=steps,
            batch=batch,
            torch_version=torch_version,
            alloc_conf=alloc_conf,
            reserved_by_others_bytes=reserved_by_others_bytes,
            suggest=suggest,
            cards=cards,
            nproc=nproc,
            nnodes=nnodes,
            meshes=meshes,
        )

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *__all__})  # so that `help` shows the function

    def __getattr__(self, name: str) -> Any:
        home = _HOMES.get(name)
        if home is None:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(home), name)
        setattr(self, name, value)
        return value


sys.modules[__name__].__class__ = _ForecastModule
