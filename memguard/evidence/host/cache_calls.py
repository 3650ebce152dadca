"""Counts the user's calls of empty_cache, with their lines."""

from __future__ import annotations

import functools
import sys
from collections import Counter
from collections.abc import Callable
from types import FrameType
from typing import Any, ClassVar, final

import torch

from memguard.clocks import perf_counter
from memguard.evidence.interface import Probe
from memguard.heap.frames import is_user_frame, place_of
from memguard.records.facts import EmptyCacheCalls, Place
from memguard.records.stats import Stage

TELL = (6, 20, 200, 2000)
"""Numbers of calls at which it is told."""


Hearer = Callable[[FrameType | None, float], None]
"""Told who called, and how many seconds it took."""

_hearers: list[Hearer] = []
_replaced: list[tuple[Any, Any, Any]] = []


def hear_calls(hearer: Hearer) -> None:
    """Stands in for ``torch.cuda.empty_cache`` and its namesakes as long as somebody hears.

    A program that imports the function by its name keeps the stand-in, so `memguard run` hears before it starts.
    """
    _hearers.append(hearer)  # first, so that whoever is interrupted below is one who can leave
    if _replaced:
        return
    for owner in _owners():
        original = getattr(owner, "empty_cache", None)
        if original is not None:
            counted = _counted(original)
            _replaced.append((owner, original, counted))
            owner.empty_cache = counted


def stop_hearing_calls(hearer: Hearer) -> None:
    """The last one to leave puts the originals back, unless somebody else replaced them since."""
    if hearer in _hearers:
        _hearers.remove(hearer)
    while _replaced and not _hearers:
        owner, original, counted = _replaced[-1]
        if owner.empty_cache is counted:
            owner.empty_cache = original
        _replaced.pop()


def _owners() -> list[Any]:
    accelerator = getattr(torch, "accelerator", None)
    modules = (torch.cuda, torch.cuda.memory, accelerator, getattr(accelerator, "memory", None))
    return [module for module in (*modules, *(getattr(torch, name, None) for name in ("xpu", "mps"))) if module]


def _counted(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def empty_cache(*args: Any, **kwargs: Any) -> Any:
        began = perf_counter()
        try:
            return original(*args, **kwargs)
        finally:
            for hearer in tuple(_hearers):
                try:
                    hearer(sys._getframe(1), perf_counter() - began)
                except Exception:  # whoever fails to hear hears no more; the user's call is none of it
                    stop_hearing_calls(hearer)

    return empty_cache


_OWN_HABITS = frozenset({"memguard", "lightning", "lightning_fabric", "pytorch_lightning"})
"""Packages that call it by themselves, as Lightning's search for a batch size does: no line of the user's to change."""


@final
class CacheCallsProbe(Probe):
    """Counts the calls while installed."""

    always: ClassVar[frozenset[str]] = frozenset({"on_batch_end"})  # which is heard when there is something to tell

    def _prepare(self) -> None:
        self._sites: Counter[Place] = Counter()
        self._calls = self._calls_in_training = 0
        self._first_batch = self._first_step = 0
        self._seconds = 0.0
        self._told = 0
        self.unsubscribe("on_batch_end")

    def install(self) -> None:
        """Begins to hear."""
        hear_calls(self._count)

    def remove(self) -> None:
        """Ceases to hear."""
        stop_hearing_calls(self._count)

    def on_batch_end(self) -> None:
        """Tells when there are enough calls."""
        self.unsubscribe("on_batch_end")
        if self._told >= len(TELL) or self._calls < TELL[self._told]:
            return
        self._told += 1
        (site, _) = self._sites.most_common(1)[0]
        # None that mean anything where it is evaluation that is cleaned up.
        trains = self._calls_in_training > self._calls // 2
        self.report(
            EmptyCacheCalls(
                **self.watch.now,
                place=site,
                calls=self._calls,
                batches=max(self.watch.batches - self._first_batch, 1),
                optimizer_steps=max(self.watch.optimizer_steps - self._first_step, 1) if trains else None,
                seconds=self._seconds,
            )
        )

    def _count(self, caller: FrameType | None, seconds: float) -> None:
        name = str(caller.f_globals.get("__name__", "")) if caller is not None else ""
        if name.partition(".")[0] in _OWN_HABITS or name == "torch.cuda.graphs":
            return  # the capture of a CUDA graph begins with one
        while caller is not None and not is_user_frame(caller):
            caller = caller.f_back
        if caller is None:
            return  # a framework's own housekeeping
        if self._calls == 0:
            self._first_batch, self._first_step = self.watch.batches, self.watch.optimizer_steps
        self._calls += 1
        self._calls_in_training += self.watch.stage is Stage.TRAIN
        self._seconds += seconds
        if len(self._sites) < 64:
            self._sites[place_of(caller)] += 1
        if self._calls in TELL:
            self.hear("on_batch_end")
