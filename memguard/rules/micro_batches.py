"""MG106: graphs of earlier micro-batches that are kept until the optimizer's step."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, final

from memguard.records.claims import Claim, Evidence
from memguard.records.facts import Fact, MicroBatchGraphs, MicroBatchOutputs
from memguard.records.findings import Severity
from memguard.records.stats import Run
from memguard.rules.finding_text import holder, plural
from memguard.rules.interface import Rule
from memguard.text.units import format_bytes

MUCH_OF_PEAK, LEAST = 0.2, 1024**2
"""Share of the peak, and bytes, from which kept graphs are worth a warning; less is a remark."""
MOST_OF_PEAK = 0.5
"""Share of the peak from which detached outputs are worth a warning."""


@final
class MicroBatchGraph(Rule):
    """Graphs of earlier micro-batches are kept until the optimizer's step.

    What: a loop that accumulates gradients runs a forward and a backward for each micro-batch, and collects what the
    model returned (outputs, log-probabilities, an entropy) in a list or a dictionary until the step. Each of these
    tensors keeps the graph of its micro-batch alive, though its backward has run, or none ever will (a second forward
    for a metric); detached ones keep their own size.

    Why it matters: micro-batches exist so that one of them at a time needs memory. Parts of the graph through which no
    backward ran still hold their activations, and the kept tensors themselves stay on the device, so the step's peak
    grows with the number of micro-batches. It falls at every step: no curve over steps shows it.

    How to fix: keep values without a graph: ``outputs.append(output.detach())``, numbers with ``.item()``, large
    tensors on the CPU (``.detach().cpu()``); or compute the metric in the micro-batch and keep only the metric.
    """

    code: ClassVar[str] = "MG106"
    name: ClassVar[str] = "micro-batch-graphs"

    def learn(self, fact: Fact, run: Run) -> Iterable[Claim]:
        """Concludes from what was alive as the optimizer stepped, or long before it did."""
        if isinstance(fact, MicroBatchGraphs):
            yield self._of_graphs(fact)
        elif isinstance(fact, MicroBatchOutputs):
            yield self._of_outputs(fact)

    def _of_graphs(self, fact: MicroBatchGraphs) -> Claim:
        each = fact.bytes / max(fact.graphs, 1)
        peak = f" of a peak of {format_bytes(fact.peak_bytes)}" if fact.peak_bytes else ""
        until, yet = (" until the optimizer's step", "") if fact.at_step else ("", " and the optimizer has yet to step")
        name, which = fact.place.holder or "it", "forward" if fact.of_parts else "micro-batch"
        why = "no backward ever runs through them" if fact.unused else f"their backward has run{yet}"
        copy = "without its graph (x.detach(), or x.item() for a number)"
        if fact.unused:
            copy = "without a graph: compute it under torch.no_grad()"
        elif not fact.saves:
            copy = "on the CPU without its graph (x.detach().cpu()), or a number (x.item())"
        return self.claim(
            fact,
            Severity.WARNING if fact.bytes >= max(MUCH_OF_PEAK * (fact.peak_bytes or 0), LEAST) else Severity.INFO,
            f"{holder(fact.place)} keeps the graphs of {plural(fact.graphs, f'earlier {which}')} alive{until}, "
            f"though {why}: {format_bytes(fact.bytes)}{peak}, {format_bytes(each)} for each.",
            f"store what goes into {name} {copy}.",
            nbytes=fact.bytes,
            bytes_per_batch=each,
            evidence=Evidence.PEAK,
            count=fact.graphs,
        )

    def _of_outputs(self, fact: MicroBatchOutputs) -> Claim:
        """What has no graph may be wanted for its values: it is a warning only where it is most of the peak."""
        each = fact.bytes / max(fact.outputs, 1)
        return self.claim(
            fact,
            Severity.WARNING if fact.bytes >= MOST_OF_PEAK * fact.peak_bytes else Severity.INFO,
            f"{holder(fact.place)} keeps the outputs of {plural(fact.outputs, 'earlier micro-batch')}, detached, until "
            f"the optimizer's step: {format_bytes(fact.bytes)} of a peak of {format_bytes(fact.peak_bytes)}, "
            f"{format_bytes(each)} for each.",
            f"compute what you need of them in their micro-batch and store that in {fact.place.holder or 'it'}, or "
            "store them on the CPU (x.detach().cpu()).",
            nbytes=fact.bytes,
            bytes_per_batch=each,
            evidence=Evidence.PEAK,
            count=fact.outputs,
        )
