"""One run of a small training: how many steps, under which guard, and what the processor did until when."""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, final

MARKED = (1, 64, 1000)
"""Steps after which the time is noted, besides the last one."""


@final
class LoopRun:
    """What a training is given: its steps, and a guard to put around them.

    Args:
        steps: How many to make.
        variant: "watch" for memguard's guard, "least" for the least hooks that record; else there is none, or it is put
            around from outside.
        options: Those of memguard's guard.
    """

    def __init__(self, steps: int, variant: str = "plain", **options: Any) -> None:
        self.total = steps
        self.seconds: dict[int, float] = {0: time.process_time()}
        """Processor time of the process after so many steps; 0 is what the imports took.

        Without Python's collections of all objects: each takes 0.1 to 0.2 s once torch is loaded, and whether one falls
        into the first thousand batches or after them is chance. They count for what a run takes once.
        """
        self._collections = 0.0
        self._began = 0.0
        gc.callbacks.append(self._collects)
        self._variant, self._options = variant, options

    def guard(self, models: Any = None, optimizers: Any = None) -> AbstractContextManager[Any]:
        """The guard around a plain loop."""
        if self._variant == "watch":
            import memguard

            return memguard.watch(models, optimizers, **self._options)
        if self._variant == "least" and models is not None:
            from tests.bench.peers import LeastHooks

            return LeastHooks(*(models if isinstance(models, list) else [models]), records=True)
        return contextlib.nullcontext()

    def callbacks(self, home: str = "memguard", name: str = "MemGuard") -> list[Any]:
        """The callbacks of a Trainer."""
        if self._variant != "watch":
            return []
        return [getattr(importlib.import_module(home), name)(**self._options)]

    def steps(self) -> Iterator[int]:
        """The numbers of the steps."""
        marks = {mark for mark in (*MARKED, self.total) if mark <= self.total}
        for step in range(self.total):
            yield step
            if step + 1 in marks:
                self.seconds[step + 1] = time.process_time() - self._collections

    def _collects(self, phase: str, info: dict[str, int]) -> None:
        if info["generation"] == 2:
            if phase == "start":
                self._began = time.process_time()
            else:
                self._collections += time.process_time() - self._began

    def batches(self, batch: Callable[[], Any]) -> Iterator[Any]:
        """As many batches as steps, for a Trainer."""
        for _ in self.steps():
            yield batch()

    def save(self, path: str) -> None:
        """Writes down the times."""
        Path(path).write_text(json.dumps(self.seconds), encoding="utf-8")
