"""The forecast of a function in a file, for a command: PyTorch is loaded by a child process alone.

A process that has loaded it takes half a second to unload it, which a child that ends itself does not do.
"""

from __future__ import annotations

import gc
import sys
import time
from dataclasses import replace
from typing import Any

from memguard.errors import MemGuardError
from memguard.forecast.child import in_child
from memguard.forecast.result import Forecast


def forecast_target(target: str, *, batch: int | None = None, **options: Any) -> Forecast:
    """The forecast of ``FILE.py:function``; see `forecast_of` for the options.

    Args:
        target: Names a function that returns (model, optimizer, step) or a LightningModule, or such a class.
        batch: The step's batch size; a function with a parameter for it is given it.
        **options: Those of `forecast_of`.

    Raises:
        MemGuardError: An option makes no sense, the function cannot be had, or the step could not be traced.
    """
    started = time.perf_counter()
    found = in_child(lambda: _answer(target, batch, options))
    return replace(found, seconds=time.perf_counter() - started)


def _answer(target: str, batch: int | None, options: dict[str, Any]) -> Forecast:
    gc.disable()  # while modules are loaded there is no garbage, but much to look through
    from memguard.forecast.forecasting import answer, asked
    from memguard.forecast.target import batch_parameter, call_target, load_target

    gc.freeze()
    gc.unfreeze()  # what was loaded is old now, and is not looked through again for what little is young
    gc.enable()
    sys.argv = [target.rpartition(":")[0]]  # the script may read arguments, and those of this command are not its own
    function = load_target(target)
    try:
        question = asked(batch=batch, takes_batch=batch_parameter(function) is not None, **options)
    except (ValueError, TypeError) as error:
        raise MemGuardError(str(error)) from None
    return answer(lambda wanted: call_target(function, wanted), question)
