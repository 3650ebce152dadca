"""The processes of Liger-Kernel's benchmarks: what they left in the allocator's cache up to a row, and what they held.

Their scripts measure speed first, forward alone and then with backward, each of their configurations at all sizes
upwards; then memory, in the same order. A row's peak is that of a process with this behind it: blocks of larger sizes
lie in the cache, and smaller ones are cut from them. So a whole process is traced as one, each row in two steps.

Speed is measured by Triton's ``do_bench``, which clears the GPU's cache between runs with a buffer of 256 MiB that it
makes after the first run. Its freed block is one more to cut from.

A module that was compiled outlives its row, by references in a circle, with its gradient if it has one, until Python
looks through all of them. That happens seldom: of several configurations the modules of the last are still there when
memory is measured, and where a published peak is below what would be held, it has happened. When it did in between is
not known, so they are made first, in memory of their own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

import torch
from torch import Tensor

from tests.bench import published_attention, published_operators
from tests.bench.published_attention import WARMED
from tests.bench.published_operators import CUDA, Settings, Step

Row = dict[str, str]
MIB = 2**20
COMPILED = "torch_compile"
STEPS = published_operators.STEPS | published_attention.STEPS
_CLEARED_BYTES = 256 * MIB
_FULL_FIRST_SINCE = "2026-05-15"
"""From that day on their scripts measure the speed of both passes before that of forward."""


def size_of(row: Row) -> int:
    """The size that a row is of."""
    return int(float(row["x_value"]))


def settings_of(row: Row) -> Settings:
    """The settings of a row."""
    settings: Settings = json.loads(row["extra_benchmark_config_str"])
    return settings


def is_compiled(row: Row) -> bool:
    """Whether the row is of a compiled operator."""
    return row["kernel_provider"] == COMPILED


def processes(rows: Sequence[Row]) -> list[list[Row]]:
    """The rows by the run of a script that made them, each in its order."""
    found: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        found.setdefault((row["kernel_name"], row["gpu_name"], row["timestamp"][:10]), []).append(row)
    return list(found.values())


def process(rows: Sequence[Row]) -> Callable[[], None]:
    """A function whose calls are the process: two for each row, the first with all that was before the row.

    Args:
        rows: The rows of a process, in their order.
    """
    running: list[Iterator[None]] = []

    def step() -> None:
        if not running:
            running.append(_process(rows))
        next(running[0])

    return step


def _process(rows: Sequence[Row]) -> Iterator[None]:
    compiled = [row for row in rows if is_compiled(row)]
    last = [row for row in compiled if settings_of(row) == settings_of(compiled[-1])]
    held = [_module(row, backward=backward) for backward in (False, True) for row in last]
    configurations = [list(ones) for _, ones in groupby(rows, lambda row: (row["x_name"], settings_of(row)))]
    for ones in configurations:
        _measure_speed(ones)
    for ones in configurations:
        if ones[0]["kernel_name"] in WARMED:
            for row in ones:
                step = _step_of(row, fused=True)
                step()
                step()
                del step
        for row in ones:
            if float(row["y_value_50"]) * MIB < sum(tensor.nbytes for tensors in held for tensor in tensors):
                held.clear()
            step = _step_of(row, compiled=is_compiled(row))
            for _ in range(2):  # the second time gradients exist
                step()
                yield
            del step  # before the next is made
            if is_compiled(row):
                held.append(_module(row, backward=True))


def _measure_speed(rows: Sequence[Row]) -> None:
    """Of one configuration; compiled operators as if they were not, as their large blocks are the same."""
    warmed = rows[0]["kernel_name"] in WARMED
    full_first = rows[0]["timestamp"] >= _FULL_FIRST_SINCE
    for backward in (full_first, not full_first):
        for fused in (True, False) if warmed else (False,):
            for row in rows:
                step = _step_of(row, fused=fused)
                run = step if backward else getattr(step, "forward", step)
                warm = run() if warmed else None
                run()
                cleared = torch.empty(_CLEARED_BYTES, dtype=torch.uint8, device=CUDA)
                run()
                del step, run, warm, cleared  # before the next is made


def _step_of(row: Row, *, compiled: bool = False, fused: bool = False) -> Step:
    if compiled:
        torch.compiler.reset()  # so that each is compiled anew
    return STEPS[row["kernel_name"]](size_of(row), {**settings_of(row), "compiled": compiled, "fused": fused})


def _module(row: Row, *, backward: bool) -> list[Tensor]:
    """The weight of a compiled embedding, and its gradient."""
    settings = settings_of(row)
    return [torch.empty(size_of(row), settings["D"], device=CUDA) for _ in range(2 if backward else 1)]
