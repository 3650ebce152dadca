"""MG106: graphs of earlier micro-batches that are kept until the optimizer's step."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, final

from memguard.claims import Claim, Evidence
from memguard.detectors.interface import Detector
from memguard.detectors.telling import from_fact, holder, plural
from memguard.facts import Fact, MicroBatchGraphs
from memguard.findings import Severity
from memguard.stats import Run
from memguard.units import format_bytes


@final
class MicroBatchGraph(Detector):
    """Graphs of earlier micro-batches are kept until the optimizer's step.

    What: a loop that accumulates gradients runs a forward and a backward for each micro-batch, and collects what the
    model returned (outputs, log-probabilities, an entropy) in a list or a dictionary until the step. Each of these
    tensors keeps the graph of its micro-batch alive, though its backward has run.

    Why it matters: micro-batches exist so that one of them at a time needs memory. Parts of the graph through which no
    backward ran still hold their activations, and the kept tensors themselves stay on the device, so the step's peak
    grows with the number of micro-batches. It falls at every step: no curve over steps shows it.

    How to fix: keep values without a graph: ``outputs.append(output.detach())``, numbers with ``.item()``, large
    tensors on the CPU (``.detach().cpu()``); or compute the metric in the micro-batch and keep only the metric.
    """

    code: ClassVar[str] = "MG106"
    name: ClassVar[str] = "micro-batch-graphs"

    def learn(self, fact: Fact, run: Run) -> Iterable[Claim]:
        """Concludes from graphs that were alive as the optimizer stepped."""
        if not isinstance(fact, MicroBatchGraphs):
            return
        each = fact.bytes / max(fact.graphs, 1)
        peak = f" of a peak of {format_bytes(fact.peak_bytes)}" if fact.peak_bytes else ""
        name = fact.place.holder or "it"
        copy = "without its graph (x.detach(), or x.item() for a number)"
        if not fact.saves:
            copy = "on the CPU without its graph (x.detach().cpu()), or a number (x.item())"
        yield from_fact(
            self,
            fact,
            run,
            Severity.WARNING,
            f"{holder(fact.place)} keeps the graphs of {plural(fact.graphs, 'earlier micro-batch')} alive until the "
            f"optimizer's step, though their backward has run: {format_bytes(fact.bytes)}{peak}, {format_bytes(each)} "
            "for each.",
            f"store what goes into {name} {copy}.",
            nbytes=fact.bytes,
            bytes_per_batch=each,
            evidence=Evidence.PEAK,
            count=fact.graphs,
        )
