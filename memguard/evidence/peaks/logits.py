"""Wide logits and the float32 copies that the loss makes of them."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import dataclass, replace
from typing import Any, final

import torch
from torch import nn

from memguard.evidence.guarded_hook import in_backward
from memguard.evidence.interface import Probe
from memguard.evidence.peaks.history import AllocationRecording
from memguard.evidence.peaks.loss_logits import (
    LEAST,
    MOST,
    InnerLogits,
    cast_before,
    cast_in,
    inner_logits,
    is_cast,
    saved_by_slices,
    upcast_in,
)
from memguard.heap.containers import tensors_in
from memguard.heap.frames import call_site, find_call, is_user_file
from memguard.records.facts import NOWHERE, LargeLogits, Place
from memguard.records.stats import Stage
from memguard.source.upcasts import find_upcast
from memguard.torch_objects.storages import owned_storages

MIN_WIDTH = 2000
"""Narrower outputs are hardly ever logits of which copies are much of a peak."""
LOOKS = frozenset({2, 3, 40})
"""Forwards with wide outputs that are followed to the end of their batch."""
NARROW = 16
"""Forwards in a row without a wide output, after which outputs are not looked at until something changes."""
AT_PEAK, SETS_PEAK = 2, 0.4
"""Float32 copies of inner logits that a backward begins with, and their share of the peak at which they set it."""
MAY_SET_PEAK = 0.2
"""Share of the peak from which on two copies may set it: where there are several forwards there are more of them."""
HISTORIES = 2
"""Histories that are read, at most."""
WORTH = 0.07
"""Of a real device, taken by two copies: from there on they are worth the stack of each allocation of a batch."""
PATIENCE = 4
"""Batches of a history in which no wide logits come: what is a batch is not always plain, as with two models."""


@final
@dataclass(frozen=True, slots=True)
class _Seen:
    """Logits of the open batch."""

    bytes: int
    float32_bytes: int
    width: int
    dtype: str
    may_be_cast: bool
    """Whether they are in half precision, or something of half precision was copied on the way to them."""
    place: Place
    """The line that called the model; of inner ones, the cast that the model's source shows."""
    before: int | None
    """The peak at the end of the forward; None of inner ones, which are gone by then."""


@final
class LogitsProbe(Probe):
    """Compares, for a few batches, the memory at the end of the forward with the batch's peak.

    Where the logits may have been copied and are much of the peak, the history of one more batch tells by which line.
    """

    def _prepare(self) -> None:
        self._forwards = self._narrow = self._histories = self._batches = self._peak = 0
        self._losses = self._of_forward = 0
        """Losses in a row without wide logits behind them, and with them since the last forward."""
        self._width = 0
        self._behind = False
        """Whether the logits were seen behind a loss, and no output shows them."""
        self._open: _Seen | None = None
        self._waiting: LargeLogits | None = None
        """What is told if the history shows no copy."""
        self._recording = AllocationRecording(self.watch)
        self.unsubscribe("on_batch_start", "on_batch_end")

    def remove(self) -> None:
        """Switches off a history that is still on."""
        self._recording.end()

    def on_model(self, model: nn.Module) -> None:
        """One more whose outputs may be wide, or whose loss."""
        self._attend()
        if self._forwards < max(LOOKS):
            self._losses = 0
            self.hear("on_loss")

    def on_stage_start(self, stage: Stage) -> None:
        """What runs now may be another part of the program."""
        self._attend()

    def on_batch_start(self) -> None:
        """A new batch, though the last one had no end."""
        self._close()

    def on_forward_end(self, module: nn.Module, args: tuple[Any, ...], output: object) -> None:
        """Notes a wide output and what is allocated now."""
        self._of_forward = 0
        if not module.training or not torch.is_grad_enabled():
            return
        widest = None
        for tensor in tensors_in(output, 2):
            if tensor.is_floating_point() and tensor.dim() >= 2 and tensor.shape[-1] >= MIN_WIDTH:
                widest = tensor if widest is None or tensor.numel() > widest.numel() else widest
        inner = inner_logits(output, MIN_WIDTH) if widest is None and self._open is None else None
        if widest is None and inner is None:
            self._narrow += 1
            if self._narrow >= NARROW and not self._recording.is_on:
                self.unsubscribe("on_forward_end")
            return
        if in_backward() or (widest is not None and not self._may_be_logits(widest)):
            self._leave()
            return
        if not self._behind:
            self.unsubscribe("on_loss")
        self._narrow = 0
        self._forwards += 1
        if self._forwards >= max(LOOKS) and not self._recording.is_on:
            self.unsubscribe("on_forward_end")
        if self._forwards in LOOKS or self._recording.is_on:
            place = cast_in(module) if inner is not None else NOWHERE
            seen = self._outer(widest) if widest is not None else _inner(inner, place) if inner is not None else None
            self._note(seen)

    def _may_be_logits(self, output: torch.Tensor) -> bool:
        """Whether the last dimension may be classes: no convolution's, and as many in each batch as in the first."""
        width = int(output.shape[-1])
        if not self._width:
            self._width = width
        return width == self._width and not type(output.grad_fn).__name__.startswith("ConvolutionBackward")

    def on_loss(self, loss: torch.Tensor) -> None:
        """Looks for wide logits behind a loss where no output shows them: the product with a weight stands outside."""
        if self._forwards and not self._behind:
            return
        self._losses += 1
        inner = inner_logits(loss, MIN_WIDTH) if not in_backward() else None
        if inner is None:
            if self._losses >= NARROW and not self._recording.is_on:
                self.unsubscribe("on_loss")
            return
        self._behind, self._losses, self._narrow = True, 0, 0
        self._of_forward += 1
        if self._of_forward > 1 and self.watch.models:
            self._leave()  # slices of one answer, each with a backward of its own
            return
        self.hear("on_forward_end")
        self._forwards += 1
        if self._forwards in LOOKS or self._recording.is_on:
            self._note(_inner(inner, cast_before(self.watch.models, lightning=self.watch.lightning)))
        if self._forwards >= max(LOOKS) and not self._recording.is_on:
            self.unsubscribe("on_loss")

    def _note(self, seen: _Seen | None) -> None:
        if seen is not None and (self._open is None or seen.float32_bytes >= self._open.float32_bytes):
            self._open = seen
            self.hear("on_batch_start", "on_batch_end")

    def _outer(self, widest: torch.Tensor) -> _Seen | None:
        stats = self.watch.read()
        if stats.allocated_bytes is None:
            return None
        return _Seen(
            bytes=widest.numel() * widest.element_size(),
            float32_bytes=widest.numel() * 4,
            width=int(widest.shape[-1]),
            dtype=str(widest.dtype).removeprefix("torch."),
            may_be_cast=widest.element_size() == 2 or (widest.grad_fn is not None and is_cast(widest.grad_fn)),
            place=call_site(),
            before=max(stats.allocated_peak_bytes or 0, stats.allocated_bytes),
        )

    def on_batch_end(self) -> None:
        """Tells how far the peak rose above the forward's, or has the next batch's history written first."""
        record, seen = self.watch.record, self._open
        if self._recording.is_on:
            self._peak = max(self._peak, record.allocated_peak_bytes or 0) if record is not None else self._peak
            self._batches += 1
            if seen is not None or self._batches >= PATIENCE:
                self._conclude(seen)
            return
        self._close()
        if seen is None or record is None or record.allocated_peak_bytes is None:
            return
        fact = self._measured(seen, record.allocated_peak_bytes)
        copies, peak = max(AT_PEAK * seen.float32_bytes, fact.extra_bytes or 0), record.allocated_peak_bytes
        if self._histories < HISTORIES and copies >= MAY_SET_PEAK * peak:
            self._histories += 1
            if self._recording.is_worth(copies, WORTH):
                self._recording.begin()
                self._waiting, self._peak, self._batches = fact, 0, 0
                self.hear("on_loss" if self._behind else "on_forward_end", "on_batch_end")
                return
        self._tell(fact, is_last=seen.before is None)

    def _conclude(self, seen: _Seen | None) -> None:
        """Reads the history, and tells of the copies in it, or else what was seen in the batch before."""
        fact, self._waiting = self._waiting, None
        upcast = self._upcast(seen) if seen is not None and seen.may_be_cast else None
        told = upcast or fact
        if told is not None:
            told = replace(told, saved_bytes=self._saved(told) if seen is not None else None)
        self._recording.end()
        self._close()
        if told is not None:
            self._tell(told, is_last=upcast is not None)

    def _saved(self, fact: LargeLogits) -> int | None:
        """What a loss in slices saves; None where parameters, and so their gradients, are as large as the logits."""
        sizes = owned_storages(self.watch.models).values()
        likely = (fact.logits_bytes, fact.float32_bytes)
        if any(LEAST * logits < size <= MOST * logits for logits in likely for size in sizes):
            return None
        return saved_by_slices(self._recording.read(), fact.logits_bytes, fact.float32_bytes)

    def _tell(self, fact: LargeLogits, *, is_last: bool) -> None:
        self.report(replace(fact, fused_losses=fused_losses()))
        if is_last:
            self._forwards = max(LOOKS)
        if self._forwards >= max(LOOKS):
            self.unsubscribe("on_forward_end", "on_loss")

    def _leave(self) -> None:
        """Logits that a backward computes again, or that come in slices: who does that needs no word. Or no logits."""
        self._forwards, self._waiting = max(LOOKS), None
        self._recording.end()
        self._close()
        self.unsubscribe("on_forward_end", "on_loss")

    def _upcast(self, seen: _Seen) -> LargeLogits | None:
        found, peak = upcast_in(self._recording.read(), seen.float32_bytes), self._peak
        if found is None or not peak or found.bytes < SETS_PEAK * peak:
            return None
        inner = seen.before is None
        shown = inner and not found.by_user and not is_user_file(seen.place.file or "")  # a library's model and loss
        return LargeLogits(
            **self.watch.now,
            place=seen.place if shown or found.place is None else found.place,
            logits_bytes=seen.float32_bytes // 2,
            float32_bytes=seen.float32_bytes,
            width=seen.width,
            dtype=seen.dtype if seen.dtype != "float32" else "half precision",
            peak_after_forward=True,
            extra_bytes=found.bytes,
            upcast=True,
            peak_bytes=peak,
        )

    def _measured(self, seen: _Seen, peak: int) -> LargeLogits:
        if seen.before is None:  # log-softmax and its gradient stand side by side as backward begins
            place, extra = seen.place, AT_PEAK * seen.float32_bytes
            after = extra >= SETS_PEAK * peak
        else:
            site = seen.place
            below = find_call(site, "float", "cross_entropy", "log_softmax", "criterion", "loss_fn", below=True)
            place, extra = find_upcast(site) or below or site, max(peak - seen.before, 0)
            after = extra > 0
        return LargeLogits(
            **self.watch.now,
            place=place,
            logits_bytes=seen.bytes,
            float32_bytes=seen.float32_bytes,
            width=seen.width,
            dtype=seen.dtype,
            peak_after_forward=after,
            extra_bytes=extra,
            peak_bytes=peak,
        )

    def _attend(self) -> None:
        self._narrow = 0
        if self._forwards < max(LOOKS):
            self.hear("on_forward_end")

    def _close(self) -> None:
        self._open = None
        self.unsubscribe("on_batch_start")
        if not self._recording.is_on:
            self.unsubscribe("on_batch_end")


def fused_losses() -> tuple[str, ...]:
    """Losses that never make all logits at once, of what is installed here: how each is written."""
    found = []
    if hasattr(nn, "LinearCrossEntropyOptions"):
        found.append(
            "torch.nn.functional.linear_cross_entropy(hidden, head.weight, labels, "
            "options=torch.nn.LinearCrossEntropyOptions())"
        )
    if importlib.util.find_spec("liger_kernel") is not None:
        found.append(
            "TrainingArguments(use_liger_kernel=True)"
            if "transformers.trainer" in sys.modules
            else "liger_kernel.transformers.LigerFusedLinearCrossEntropyLoss"
        )
    return tuple(found)


def _inner(found: InnerLogits, place: Place) -> _Seen:
    float32 = 4 * found.numel
    return _Seen(
        bytes=2 * found.numel if found.was_cast else float32,
        float32_bytes=float32,
        width=found.width,
        dtype="half precision" if found.was_cast else "float32",
        may_be_cast=found.was_cast,
        place=place,
        before=None,
    )
