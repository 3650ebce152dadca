"""Will a training step fit? Traced on fake tensors, simulated to the byte.

The package is also the function: ``memguard.forecast(step, model=..., optimizer=..., device="24GiB")``. So it is one
name whether it was reached as an attribute of memguard or by ``import memguard.forecast``. Loads torch on first use.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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
    """A module that is called like its main function."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """`forecast`; see there."""
        return self.forecast(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        home = _HOMES.get(name)
        if home is None:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(home), name)
        setattr(self, name, value)
        return value


sys.modules[__name__].__class__ = _ForecastModule
