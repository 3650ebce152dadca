"""Counts the user's calls of empty_cache, and where they stand."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, ClassVar, final

import torch

from memguard.facts import EmptyCacheCalls, Fact, Place
from memguard.probes.frames import is_user_frame
from memguard.probes.interface import Probe, Watch
from memguard.probes.sites import place_of

TELL = (20, 200, 2000)
"""Numbers of calls at which it is told."""


@final
class CacheCallsProbe(Probe):
    """Stands in for ``torch.cuda.empty_cache`` (and its namesakes) while installed, and calls it."""

    name: ClassVar[str] = "cache calls"
    always: ClassVar[frozenset[str]] = frozenset({"on_batch_end"})  # which is heard when there is something to tell

    def __init__(self, watch: Watch, report: Callable[[Fact], None]) -> None:
        super().__init__(watch, report)
        self._replaced: list[tuple[Any, Any, Any]] = []
        self._sites: Counter[Place] = Counter()
        self._calls = 0
        self._first_batch = 0
        self._seconds = 0.0
        self._told = 0
        self.stop_hearing("on_batch_end")

    def install(self) -> None:
        """Puts the stand-ins in place."""
        owners: tuple[Any, ...] = (
            *(torch.cuda, torch.cuda.memory),
            *(getattr(torch, name, None) for name in ("accelerator", "xpu")),
        )
        for owner in owners:
            original = getattr(owner, "empty_cache", None)
            if owner is None or original is None:
                continue
            counted = self._counted(original)
            self._replaced.append((owner, original, counted))
            owner.empty_cache = counted

    def remove(self) -> None:
        """Puts the originals back, unless somebody else replaced them since."""
        for owner, original, counted in self._replaced:
            if owner.empty_cache is counted:
                owner.empty_cache = original
        self._replaced.clear()

    def on_batch_end(self) -> None:
        """Tells when there are enough calls."""
        self.stop_hearing("on_batch_end")
        if self._told >= len(TELL) or self._calls < TELL[self._told]:
            return
        self._told += 1
        (site, _) = self._sites.most_common(1)[0]
        self.report(
            EmptyCacheCalls(
                batch=self.watch.batch,
                stage=self.watch.stage,
                place=site,
                calls=self._calls,
                batches=max(self.watch.batches - self._first_batch, 1),
                seconds=self._seconds,
            )
        )

    def _counted(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def empty_cache(*args: Any, **kwargs: Any) -> Any:
            began = time.perf_counter()
            try:
                return original(*args, **kwargs)
            finally:
                self._count(sys._getframe(1), time.perf_counter() - began)

        empty_cache.__doc__, empty_cache.__name__ = original.__doc__, "empty_cache"
        return empty_cache

    def _count(self, caller: Any, seconds: float) -> None:
        if str(caller.f_globals.get("__name__", "")).partition(".")[0] == "memguard":
            return
        while caller is not None and not is_user_frame(caller):
            caller = caller.f_back
        if caller is None:
            return  # a framework's own housekeeping
        if self._calls == 0:
            self._first_batch = self.watch.batches
        self._calls += 1
        self._seconds += seconds
        if len(self._sites) < 64:
            self._sites[place_of(caller)] += 1
        if self._calls in TELL:
            self.hear("on_batch_end")
