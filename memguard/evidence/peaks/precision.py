"""Autocast regions that span batches."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable
from dataclasses import replace
from types import FrameType
from typing import final

import torch
import torch.utils.checkpoint

from memguard.evidence.interface import Probe
from memguard.heap.frames import call_site, frames_from, is_user_frame, place_of, user_frames
from memguard.records.facts import AutocastOpen, Place
from memguard.source.model import SourceModel
from memguard.source.sites import AutocastRegions
from memguard.torch_objects.module_parts import parameters_of

OPEN_BATCHES = 3
MOST_OTHERS = 8
"""Times that a region turned out to be one batch's own, after which none is asked for."""

_any_autocast: Callable[[], bool] | None = getattr(torch._C, "_is_any_autocast_enabled", None)  # checked in torch 2.13


@final
class AutocastProbe(Probe):
    """Asks at the edges of batches whether an autocast region is open."""

    def _prepare(self) -> None:
        self._open = self._others = 0
        if self.watch.lightning:  # precision plugins open a region around each step
            self.unsubscribe("on_batch_end")
        own = self.watch.device.partition(":")[0]
        self._kinds = (own, "cpu") if own in ("cuda", "xpu", "mps") else ("cpu", "cuda")

    def on_batch_end(self) -> None:
        """Counts batches that end inside a region with its cache on."""
        kinds = self._kinds if _any_autocast is None or _any_autocast() else ()
        kind = next((kind for kind in kinds if torch.is_autocast_enabled(kind)), None)
        if kind is None or not torch.is_autocast_cache_enabled():
            self._open = 0
            return
        self._open += 1
        if self._open < OPEN_BATCHES:
            return
        if not spans_batches(sys._getframe(1)):
            self._open, self._others = 0, self._others + 1
            if self._others >= MOST_OTHERS:
                self.unsubscribe("on_batch_end")
            return
        self.unsubscribe("on_batch_end")
        dtype = torch.get_autocast_dtype(kind)
        size = torch.empty((), dtype=dtype).element_size()
        weights = sum(
            parameter.numel() * size
            for model in self.watch.models
            for parameter in parameters_of(model)
            if parameter.dtype is torch.float32
        )
        self.report(AutocastOpen(**self.watch.now, place=_region(), batches=self._open, bytes=weights))


def _region() -> Place:
    """The line that opened the region: the nearest one above where one of the user's functions stands.

    Else the only one in their files that leaves a region open, in a method that has returned since.
    """
    left_open: set[tuple[str, str | None, int]] = set()
    for frame in user_frames():
        file = frame.f_code.co_filename
        regions = AutocastRegions(SourceModel.of(file))
        first = None if frame.f_code.co_name == "<module>" else frame.f_code.co_firstlineno
        if (line := regions.entered_at(first, frame.f_lineno)) is not None:
            return replace(place_of(frame), line=line, source=linecache.getline(file, line).strip())
        left_open.update((file, function, line) for function, line in regions.left_open())
    if len(left_open) == 1:
        ((file, function, line),) = left_open
        return Place(file=file, line=line, function=function, source=linecache.getline(file, line).strip())
    return call_site()


_CHECKPOINT = torch.utils.checkpoint.__file__


def spans_batches(frame: FrameType | None) -> bool:
    """Whether a loop stands between the region's ``with`` and what runs; True also where no such ``with`` is found.

    Where the model's call is the first that is heard of a batch, the last one ends inside the region of the next. And a
    checkpointed block that backward computes again is computed under the autocast of its forward.
    """
    loops = False
    for each in frames_from(frame):
        if each.f_code.co_filename == _CHECKPOINT:
            return False
        if is_user_frame(each):
            regions = AutocastRegions(SourceModel.of(each.f_code.co_filename))
            entered, inner = regions.loop_inside(each.f_code.co_firstlineno, each.f_lineno)
            loops = loops or inner
            if entered:
                return loops
    return True
