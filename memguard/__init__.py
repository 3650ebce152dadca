"""memguard: a guard that rides along any PyTorch training loop.

Everything public is here, and loads what it needs when it is first used: ``import memguard`` itself loads neither torch
nor lightning nor tensorboard.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

if TYPE_CHECKING:
    from memguard.axes import coordinates as coordinates
    from memguard.errors import MemGuardError as MemGuardError
    from memguard.evidence.oom.errors import is_oom as is_oom
    from memguard.forecast.forecasting import forecast as forecast
    from memguard.forecast.result import Forecast as Forecast
    from memguard.integrations.batch_size import find_batch_size as find_batch_size
    from memguard.integrations.batch_size import retry_on_oom as retry_on_oom
    from memguard.integrations.guard import Guard as Guard
    from memguard.integrations.guarded_device import max_memory_allocated as max_memory_allocated
    from memguard.integrations.guarded_device import max_memory_reserved as max_memory_reserved
    from memguard.integrations.guarded_device import memory_allocated as memory_allocated
    from memguard.integrations.guarded_device import memory_reserved as memory_reserved
    from memguard.integrations.lightning import MemGuardMixin as _MemGuardMixin
    from memguard.integrations.torch import current as current
    from memguard.integrations.torch import unwrap as unwrap
    from memguard.integrations.torch import watch as watch
    from memguard.integrations.torch import wrap as wrap
    from memguard.options import Options as Options
    from memguard.phases import phase as phase
    from memguard.recording.reader import Recording as Recording
    from memguard.records.findings import Finding as Finding
    from memguard.records.findings import Severity as Severity
    from memguard.records.stats import BatchRecord as BatchRecord
    from memguard.records.stats import Stage as Stage
    from memguard.records.summary import Summary as Summary
    from memguard.rules.allow import allow as allow

    class MemGuard(_MemGuardMixin, Any):  # type: ignore[misc]  # a Callback of whichever Lightning the program has
        """Guards a Lightning Trainer."""


_HOMES = {
    "allow": "memguard.rules.allow",
    "BatchRecord": "memguard.records.stats",
    "Finding": "memguard.records.findings",
    "Forecast": "memguard.forecast.result",
    "Guard": "memguard.integrations.guard",
    "MemGuardError": "memguard.errors",
    "Options": "memguard.options",
    "Recording": "memguard.recording.reader",
    "Severity": "memguard.records.findings",
    "Stage": "memguard.records.stats",
    "Summary": "memguard.records.summary",
    "coordinates": "memguard.axes",
    "current": "memguard.integrations.torch",
    "find_batch_size": "memguard.integrations.batch_size",
    "is_oom": "memguard.evidence.oom.errors",
    "max_memory_allocated": "memguard.integrations.guarded_device",
    "max_memory_reserved": "memguard.integrations.guarded_device",
    "memory_allocated": "memguard.integrations.guarded_device",
    "memory_reserved": "memguard.integrations.guarded_device",
    "phase": "memguard.phases",
    "retry_on_oom": "memguard.integrations.batch_size",
    "unwrap": "memguard.integrations.torch",
    "watch": "memguard.integrations.torch",
    "wrap": "memguard.integrations.torch",
}

__all__ = ["MemGuard", "__version__", "forecast", *_HOMES]  # pyright: ignore


if not TYPE_CHECKING:  # a type checker knows the names above, and that there are no others

    def __getattr__(name: str) -> Any:
        from memguard.loading import load

        if name == "MemGuard":  # not kept: it suits the Lightning packages that are imported at this moment
            return load("memguard.integrations.lightning_class").memguard_class()
        if name == "forecast":  # the package is the function, see there
            return load("memguard.forecast")
        home = _HOMES.get(name)
        if home is None:
            raise AttributeError(f"module 'memguard' has no attribute {name!r}")
        value = globals()[name] = getattr(load(home), name)
        return value


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})  # what an editor offers
