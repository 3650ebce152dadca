"""MG310 and MG311: float32 copies of logits, and casts that autocast keeps."""

from __future__ import annotations

from collections.abc import Iterable
from typing import final

from memguard.records.claims import Claim, Evidence
from memguard.records.facts import AutocastOpen, Fact, LargeLogits
from memguard.records.findings import Severity
from memguard.records.stats import Run, limit_of
from memguard.rules.finding_text import plural
from memguard.rules.interface import Rule
from memguard.text.units import format_bytes
from memguard.thresholds import some_of

WIDE = 16_384
SHARE = 0.15
SMALL = 0.02
"""Of the device: a smaller float32 copy is no more than a remark, for what it adds to the peak."""
MOST_COPIES = 8
"""Float32 copies of the logits that loss and backward can hold at once, twice over for what comes with them."""


@final
class LogitsUpcast(Rule, code="MG310", name="logits-upcast", evidence=Evidence.PEAK):
    """Full-size logits copied to float32 set the peak.

    What: the model has logits over a large vocabulary, and the loss makes float32 copies of all of them; the peak of
    the batch comes there, not in the model.

    Why it matters: logits, their float32 copy, the log-softmax and its gradient exist at the same time: three to four
    times the logits, often more than all layers together.

    How to fix: a fused or chunked cross-entropy, computing the loss in slices of the sequence, or logits only where
    labels are; no ``.float()`` on the whole tensor.
    """

    def learn(self, fact: Fact, run: Run) -> Iterable[Claim]:
        """Concludes where the peak came after the forward, and rose by at least a float32 copy, or consists of them."""
        if isinstance(fact, LargeLogits) and fact.upcast:
            yield from self._upcast(fact, run)
            return
        if not isinstance(fact, LargeLogits) or fact.peak_after_forward is not True:
            return
        if fact.extra_bytes is None or fact.extra_bytes < fact.float32_bytes:
            return
        if fact.extra_bytes > MOST_COPIES * fact.float32_bytes:
            return  # something else made the peak: gradients, a workspace
        total = limit_of(run)
        share = fact.float32_bytes / total if total else 0.0
        if fact.width < WIDE and share < SHARE:
            return
        big = total is not None and fact.extra_bytes >= SHARE * total
        yield self.claim(
            fact,
            Severity.WARNING if big else Severity.INFO,
            f"the peak comes in the loss: logits of {fact.width} classes ({format_bytes(fact.logits_bytes)} in "
            f"{fact.dtype}) take {format_bytes(fact.extra_bytes)} more on top of the forward, in float32 copies and "
            f"log-softmax.",
            _remedy(fact, "compute logits and loss in slices."),
            nbytes=fact.extra_bytes,
        )

    def _upcast(self, fact: LargeLogits, run: Run) -> Iterable[Claim]:
        """Copies of half-precision logits were seen at the peak: however many classes there are."""
        total, copies = limit_of(run), fact.extra_bytes or 0
        if copies < fact.float32_bytes or not fact.peak_bytes or copies < some_of(fact.peak_bytes):
            return
        big = total is not None and fact.float32_bytes >= SMALL * total and copies >= SHARE * total
        yield self.claim(
            fact,
            Severity.WARNING if big else Severity.INFO,
            f"logits of {fact.width} classes in {fact.dtype} ({format_bytes(fact.logits_bytes)}) are copied to float32 "
            f"here: with log-softmax and gradient of the same size the copies are {format_bytes(copies)} of a peak of "
            f"{format_bytes(fact.peak_bytes)}.",
            _remedy(fact, "cast and compute the loss in slices; no float() on all logits."),
            nbytes=copies,
        )


def _remedy(fact: LargeLogits, by_hand: str) -> str:
    """The losses that are installed, what they save in a replay of the batch, and what to do without them."""
    named = " or ".join(fact.fused_losses)
    saves = ""
    if fact.saved_bytes and fact.peak_bytes:
        lower = format_bytes(max(fact.peak_bytes - fact.saved_bytes, 0))
        saves = f" That lowers this batch's peak from {format_bytes(fact.peak_bytes)} to about {lower}."
    return f"use a fused or chunked cross-entropy{f', like {named}' if named else ''}, or {by_hand}{saves}"


@final
class AutocastCache(Rule, code="MG311", name="autocast-cache", evidence=Evidence.PEAK):
    """An autocast region spans steps and keeps cast weights.

    What: ``torch.autocast`` is still open when one batch ends and the next begins.

    Why it matters: autocast keeps the low-precision copy of each weight until its outermost region ends. Over steps
    that is half the parameters' size for nothing, and under no_grad the copies may be out of date.

    How to fix: open autocast around one forward and loss, or pass ``cache_enabled=False``.
    """

    def learn(self, fact: Fact, run: Run) -> Iterable[Claim]:
        """Concludes from a region that stayed open over batches."""
        if not isinstance(fact, AutocastOpen):
            return
        size = f" (up to {format_bytes(fact.bytes)})" if fact.bytes else ""
        yield self.claim(
            fact,
            Severity.INFO if fact.stage.evaluates else Severity.WARNING,
            f"one autocast region was open over {plural(fact.batches, 'batch')}: it keeps the casts of all "
            f"weights{size} until it ends.",
            "open torch.autocast around each forward and its loss, or pass cache_enabled=False.",
            nbytes=fact.bytes,
        )
