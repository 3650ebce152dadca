"""Wide logits and the float32 copies that the loss makes of them; autocast regions that span batches."""

from __future__ import annotations

import linecache
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar, final

import torch
from torch import nn

from memguard.facts import AutocastOpen, Fact, LargeLogits, Place
from memguard.probes.autocast_spans import spans_batches
from memguard.probes.frames import user_frames
from memguard.probes.inner_logits import InnerLogits, cast_in, inner_logits
from memguard.probes.interface import Probe, Watch
from memguard.probes.ledger import tensors_in
from memguard.probes.sites import call_site, find_call, place_of
from memguard.probes.upcasts import find_upcast
from memguard.stats import Stage

MIN_WIDTH = 4096
MIN_SHARE = 0.05
LOOKS = frozenset({2, 3, 40})
"""Forwards with wide outputs that are followed to the end of their batch."""
NARROW = 16
"""Forwards in a row without a wide output, after which outputs are not looked at until something changes."""
AT_PEAK, SETS_PEAK = 2, 0.4
"""Float32 copies of inner logits that a backward begins with, and their share of the peak at which they set it."""
OPEN_BATCHES = 3
MOST_OTHERS = 8
"""Times that a region turned out to be one batch's own, after which none is asked for."""

_any_autocast: Callable[[], bool] | None = getattr(torch._C, "_is_any_autocast_enabled", None)  # checked in torch 2.13


@final
class LogitsProbe(Probe):
    """Compares, for a few batches, the memory at the end of the forward with the batch's peak."""

    name: ClassVar[str] = "logits"

    def __init__(self, watch: Watch, report: Callable[[Fact], None]) -> None:
        super().__init__(watch, report)
        self._forwards = self._narrow = 0
        self._open: tuple[int, int, int, str, int, Place] | None = None
        self._inner: tuple[InnerLogits, Place] | None = None
        self.stop_hearing("on_batch_start", "on_batch_end")

    def on_model(self, model: nn.Module) -> None:
        """One more whose outputs may be wide."""
        self._attend()

    def on_stage_start(self, stage: Stage) -> None:
        """What runs now may be another part of the program."""
        self._attend()

    def on_batch_start(self) -> None:
        """A new batch, though the last one had no end."""
        self._close()

    def on_forward_end(self, module: nn.Module, args: tuple[Any, ...], output: object) -> None:
        """Notes a wide output and what is allocated now."""
        if not module.training or not torch.is_grad_enabled():
            return
        widest = None
        for tensor in tensors_in(output, 2):
            if tensor.is_floating_point() and tensor.dim() >= 2 and tensor.shape[-1] >= MIN_WIDTH:
                widest = tensor if widest is None or tensor.numel() > widest.numel() else widest
        if widest is None and not self._inner and self._look_inside(module, output):
            return
        if widest is None:
            self._narrow += 1
            if self._narrow >= NARROW:
                self.stop_hearing("on_forward_end")
            return
        self._narrow = 0
        self._forwards += 1
        if self._forwards >= max(LOOKS):
            self.stop_hearing("on_forward_end")
        if self._forwards not in LOOKS:
            return
        stats = self.watch.read()
        if stats.allocated_bytes is None:
            return
        self._open = (
            widest.numel() * widest.element_size(),
            widest.numel() * 4,
            int(widest.shape[-1]),
            str(widest.dtype).removeprefix("torch."),
            max(stats.allocated_peak_bytes or 0, stats.allocated_bytes),
            call_site(),
        )
        self.hear("on_batch_start", "on_batch_end")

    def _look_inside(self, module: nn.Module, output: object) -> bool:
        """Whether the model answers with a loss over wide logits of its own: told at the end of its second batch."""
        found = inner_logits(output, MIN_WIDTH)
        if found is None:
            return False
        self._forwards += 1
        if self._forwards in LOOKS:
            self._inner = (found, cast_in(module))
            self.stop_hearing("on_forward_end")
            self.hear("on_batch_start", "on_batch_end")
        return True

    def _tell_inner(self, found: InnerLogits, place: Place) -> None:
        """Log-softmax and its gradient stand side by side as backward begins: the peak, if they are much of it."""
        record = self.watch.record
        peak = record.allocated_peak_bytes if record is not None else None
        float32 = 4 * found.numel
        self.report(
            LargeLogits(
                batch=self.watch.batch,
                stage=self.watch.stage,
                place=place,
                logits_bytes=2 * found.numel if found.was_cast else float32,
                float32_bytes=float32,
                width=found.width,
                dtype="half precision" if found.was_cast else "float32",
                peak_after_forward=None if peak is None else AT_PEAK * float32 >= SETS_PEAK * peak,
                extra_bytes=AT_PEAK * float32,
            )
        )

    def on_batch_end(self) -> None:
        """Tells how far the peak rose above the forward's."""
        record, found, inner = self.watch.record, self._open, self._inner
        self._close()
        if inner is not None:
            self._tell_inner(*inner)
            return
        if found is None or record is None or record.allocated_peak_bytes is None:
            return
        logits, float32, width, dtype, before, site = found
        below = find_call(site, "float", "cross_entropy", "log_softmax", "criterion", "loss_fn", below=True)
        place = find_upcast(site) or below or site
        extra = record.allocated_peak_bytes - before
        self.report(
            LargeLogits(
                batch=self.watch.batch,
                stage=self.watch.stage,
                place=place,
                logits_bytes=logits,
                float32_bytes=float32,
                width=width,
                dtype=dtype,
                peak_after_forward=extra > 0,
                extra_bytes=max(extra, 0),
            )
        )

    def _attend(self) -> None:
        self._narrow = 0
        if self._forwards < max(LOOKS):
            self.hear("on_forward_end")

    def _close(self) -> None:
        self._open = None
        self.stop_hearing("on_batch_start", "on_batch_end")


@final
class AutocastProbe(Probe):
    """Asks at the edges of batches whether an autocast region is open."""

    name: ClassVar[str] = "autocast"

    def __init__(self, watch: Watch, report: Callable[[Fact], None]) -> None:
        super().__init__(watch, report)
        self._open = self._others = 0
        if watch.lightning:  # precision plugins open a region around each step
            self.stop_hearing("on_batch_end")
        own = watch.device.partition(":")[0]
        self._kinds = (own, "cpu") if own in ("cuda", "xpu", "mps") else ("cpu", "cuda")

    def on_batch_end(self) -> None:
        """Counts batches that end inside a region with its cache on."""
        if _any_autocast is not None and not _any_autocast():
            self._open = 0
            return
        kind = next((kind for kind in self._kinds if torch.is_autocast_enabled(kind)), None)
        if kind is None or not torch.is_autocast_cache_enabled():
            self._open = 0
            return
        self._open += 1
        if self._open < OPEN_BATCHES:
            return
        if not spans_batches(sys._getframe(1)):
            self._open, self._others = 0, self._others + 1
            if self._others >= MOST_OTHERS:
                self.stop_hearing("on_batch_end")
            return
        self.stop_hearing("on_batch_end")
        dtype = torch.get_autocast_dtype(kind)
        size = torch.empty((), dtype=dtype).element_size()
        weights = sum(
            parameter.numel() * size
            for model in self.watch.models
            for parameter in model.parameters()
            if parameter.dtype is torch.float32
        )
        self.report(
            AutocastOpen(
                batch=self.watch.batch,
                stage=self.watch.stage,
                place=_region(),
                batches=self._open,
                bytes=weights,
            )
        )


def _region() -> Place:
    """The line that opened the region: the nearest autocast above where one of the user's functions stands."""
    for frame in user_frames():
        lines = linecache.getlines(frame.f_code.co_filename)
        for index in range(min(frame.f_lineno, len(lines)) - 1, frame.f_code.co_firstlineno - 2, -1):
            if index >= 0 and "autocast(" in lines[index].partition("#")[0]:
                index = _entered(lines, index, frame.f_lineno)
                return replace(place_of(frame), line=index + 1, source=lines[index].strip())
    return call_site()


def _entered(lines: list[str], made: int, until: int) -> int:
    """Where a region is entered that was made on a line and given a name: ``with ctx:``, ``ctx.__enter__()``."""
    name = re.match(r"\s*(\w+)\s*=[^=]", lines[made])
    if name is not None:
        entering = re.compile(rf"\s*(?:with\s+{name[1]}\b|{name[1]}\.__enter__\s*\()")
        for index in range(min(until, len(lines)) - 1, made, -1):
            if entering.match(lines[index]):
                return index
    return made
