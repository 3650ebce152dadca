"""The processes of Liger-Kernel's benchmarks up to a row: what they left in the allocator's cache, and what they held.

Their scripts measure speed first, forward alone and then with backward, each of their configurations at all sizes
upwards; then memory, in the same order. A row's peak is that of a process with this behind it: blocks of larger sizes
lie in the cache, and smaller ones are cut from them.

A module that was compiled outlives its row, by references in a circle, with its gradient if it has one, until Python
looks through all of them. That happens seldom: where a published peak is below what would be held, it has happened.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby

import torch
from torch import Tensor

from tests.bench.published_operators import CUDA, STEPS, Settings, Step

Row = dict[str, str]
MIB = 2**20
COMPILED = "torch_compile"


def size_of(row: Row) -> int:
    """The size that a row is of."""
    return int(float(row["x_value"]))


def settings_of(row: Row) -> Settings:
    """The settings of a row, and whether the operator was compiled."""
    return {**json.loads(row["extra_benchmark_config_str"]), "compiled": row["kernel_provider"] == COMPILED}


def same_process(row: Row, rows: Iterable[Row]) -> list[Row]:
    """The rows that one run of one script made, in their order."""
    names = "kernel_name", "gpu_name"
    day = row["timestamp"][:10]
    return [one for one in rows if all(one[n] == row[n] for n in names) and one["timestamp"][:10] == day]


def in_process(row: Row, rows: Sequence[Row], *, alone: bool = False) -> Step:
    """The step of a row; its first call does before what the process did.

    Args:
        row: The row.
        rows: All rows of its process, in their order.
        alone: The cache is empty; only what the process holds is there.
    """
    measured: list[Step] = []
    held: list[list[Tensor]] = []

    def step() -> None:
        if not measured:
            _history(row, rows, held, run=_nothing if alone else _run)
            measured.append(STEPS[row["kernel_name"]](size_of(row), settings_of(row)))
        measured[0]()

    return step


def _history(row: Row, rows: Sequence[Row], held: list[list[Tensor]], run: Callable[[Row], None]) -> None:
    series = [list(group) for _, group in groupby(rows, lambda one: (one["x_name"], settings_of(one)))]
    for ones in series:
        if not _is_compiled(ones[0]):
            held.clear()  # of several configurations, the compiled modules of the last are still there
        for backward in (False, True):
            for one in ones:
                run(one)
                if _is_compiled(one):
                    held.append(_module(one, backward=backward))
    for one in rows:
        if one is row:
            if float(one["y_value_50"]) * MIB < sum(t.nbytes for tensors in held for t in tensors):
                held.clear()
            return
        if float(one["y_value_50"]) * MIB < sum(t.nbytes for tensors in held for t in tensors):
            held.clear()
        run(one)
        if _is_compiled(one):
            held.append(_module(one, backward=True))


def _is_compiled(row: Row) -> bool:
    return row["kernel_provider"] == COMPILED


def _run(row: Row) -> None:
    """Twice, as the first time gradients do not exist yet; in eager mode, whose large blocks are the same."""
    step = STEPS[row["kernel_name"]](size_of(row), {**settings_of(row), "compiled": False})
    step()
    step()


def _nothing(row: Row) -> None:
    """Instead of it."""


def _module(row: Row, *, backward: bool) -> list[Tensor]:
    """The weight of a compiled embedding, and its gradient."""
    settings = settings_of(row)
    return [torch.empty(size_of(row), settings["D"], device=CUDA) for _ in range(2 if backward else 1)]
