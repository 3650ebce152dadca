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
from memguard.forecast.recorded import Measured
from memguard.forecast.result import Forecast


def forecast_target(target: str, *, batch: int | None = None, measure: bool = False, **options: Any) -> Forecast:
    """The forecast of ``FILE.py:function``; see `forecast_of` for the options.

    Args:
        target: Names a function that returns (model, optimizer, step) or a LightningModule, or such a class.
        batch: The step's batch size; a function with a parameter for it is given it.
        measure: Run the steps for real on this machine's GPU, and answer by replay.
        **options: Those of `forecast_of`.

    Raises:
        MemGuardError: An option makes no sense, the function cannot be had, or the step could not be traced.
    """
    started = time.perf_counter()
    if measure:
        if options.get("nproc") is not None:
            raise MemGuardError("--measure runs one process on one GPU, and --nproc is for several")
        measured = _measured(target, batch, options.get("steps", 3))
        found = in_child(lambda: _answer_measured(measured, batch, options))
    else:
        found = in_child(lambda: _answer(target, batch, options))
    return replace(found, seconds=time.perf_counter() - started)


def _measured(target: str, batch: int | None, steps: int) -> list[Measured]:
    """Real steps at one batch size, or at two that run where the function takes one; each in a process of its own."""

    def measure(size: int | None) -> Measured:
        sys.argv = [target.rpartition(":")[0]]
        from memguard.forecast.measuring import measure_target

        return measure_target(target, size, steps)

    found = [in_child(lambda: measure(batch))]
    sizes = [] if batch is None or not found[0].takes_batch else [batch >> shift for shift in range(1, 63)]
    for size in [2] if batch == 1 and sizes else filter(None, sizes):
        if sum(one.out_of_memory is None for one in found) == 2:
            break
        found.append(in_child(lambda size=size: measure(size), quiet=True))  # type: ignore[misc]
    if all(one.out_of_memory for one in found):
        raise MemGuardError(
            f"the step runs out of memory on {found[0].device}, so nothing can be measured; without --measure it is "
            f"forecast. PyTorch said: {found[-1].out_of_memory}"
        )
    return found


def _answer_measured(measured: list[Measured], batch: int | None, options: dict[str, Any]) -> Forecast:
    from memguard.forecast.forecasting import answer_measured, asked

    try:
        question = asked(batch=batch, takes_batch=measured[0].takes_batch, **options)
    except (ValueError, TypeError) as error:
        raise MemGuardError(str(error)) from None
    return answer_measured(measured, question)


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
