"""MG101, MG102 and MG106: graphs of earlier batches and micro-batches that something keeps alive."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import final

from memguard.records.claims import Claim, Evidence
from memguard.records.facts import (
    Fact,
    FunctionContextHolds,
    MicroBatchGraphs,
    MicroBatchOutputs,
    Place,
    RanOutOfMemory,
    RetainedGraphs,
    UnreadStorages,
)
from memguard.records.findings import Severity
from memguard.records.stats import Run
from memguard.rules.finding_text import (
    REMEDY_OF_NUMBERS,
    at,
    from_post_mortem,
    holder,
    in_code,
    of_peak,
    plural,
    severity_at_peak,
    so_far,
)
from memguard.rules.interface import Rule
from memguard.text.units import format_bytes

LEAST_GRAPH_BYTES = 512
"""Of one graph on the device, the smallest block of its allocator: less is the number that it ends in."""


@final
class RetainedGraph(Rule, code="MG101", name="retained-graph", evidence=Evidence.GROWTH):
    """Graphs of earlier batches are kept alive.

    What: a tensor with an autograd graph is stored for longer than its batch: a running sum (``total += loss``), a
    list of losses or outputs, a dictionary, a meter, a hook that collects activations. The rule reports eight graphs
    that are still alive three optimizer steps after the last of them was built, or three to five graphs that are kept
    only now and then, if an optimizer step has passed and nothing empties what keeps them.

    Why it matters: each stored tensor keeps its whole graph. If no backward ran through it, that is every activation
    of its forward, on the device; after a backward it is the graph's nodes, in host memory, and the tensor itself. It
    grows with every batch until memory is full.

    How to fix: store a value, not a graph: ``total += loss.detach()`` or ``losses.append(loss.detach())``;
    ``loss.item()`` if a number will do and a synchronisation is acceptable; ``.detach().cpu()`` for large outputs.
    """

    def __init__(self) -> None:
        self._cycle = False
        """Whether a context that keeps its own output was told (MG105): a circle through C++, without a name."""
        self._told: list[Place] = []

    def learn(self, fact: Fact, run: Run) -> Iterable[Claim]:
        """Concludes from retained graphs that no recurrent state carries."""
        if isinstance(fact, FunctionContextHolds):
            self._cycle = self._cycle or fact.cycle
        yield from _ran_out(self, fact)
        if not isinstance(fact, RetainedGraphs) or fact.carried:
            return
        if self._cycle and fact.place.holder is None and fact.place.line is None:
            return
        per_batch = _per_batch(fact)
        what = f"a graph that got longer over {plural(fact.graphs, 'batch')}"
        if not fact.deepened:
            counted = plural(fact.graphs, "graph") if fact.counted else f"the graphs of {plural(fact.graphs, 'batch')}"
            what = f"{counted} alive"
        message = f"{_who(fact)} keeps {what}{_since(fact)}{_cost(fact, run)}."
        name = fact.place.holder or "it"
        advice = (
            f"store the value without its graph: detach what goes into {name} (x.detach(), or x.item() for a number)"
        )
        if re.search(r"\bregister_\w*hook\s*\(", fact.place.source or "") and "append" not in (fact.place.source or ""):
            advice = "keep the handle that the registration returns, and call handle.remove() when the batch is done"
        if not fact.trains:
            advice = _NO_GRAD
        elif not fact.backward:
            advice += "; if it is evaluation, run it under torch.no_grad()"
        # The mean and the variance of one update: a graph that is known by its depth alone is no second warning.
        known = fact.deepened and any(fact.place.is_beside(told) for told in self._told)
        if not known:
            self._told.append(fact.place)
        yield self.claim(
            fact,
            Severity.INFO if known else Severity.WARNING,
            message,
            advice + ".",
            nbytes=_bytes(fact),
            bytes_per_batch=per_batch,
            count=fact.graphs,
            since=fact.first_batch,
            is_limited=known,
        )


@final
class CarriedState(Rule, code="MG102", name="carried-state", evidence=Evidence.GROWTH):
    """A recurrent state is carried over batches without detach.

    What: a hidden state, a memory or a moving average is computed in one batch and used in the next with its graph, so
    each new graph contains all the earlier ones. This also happens if it is detached where it is read (a centre, class
    prototypes, the rows of a graph network's memory) but not where it is written.

    Why it matters: memory and the time of backward grow with every batch; a backward either fails on weights that were
    changed in place, or runs through the whole past.

    How to fix: cut the graph where the batch ends: ``hidden = hidden.detach()``, for a tuple
    ``hidden = tuple(h.detach() for h in hidden)``.
    """

    def learn(self, fact: Fact, run: Run) -> Iterable[Claim]:
        """Concludes from retained graphs that the newest graph reaches."""
        yield from _ran_out(self, fact)
        if not isinstance(fact, RetainedGraphs) or not fact.carried:
            return
        per_batch = _per_batch(fact)
        name, backward = in_code(fact.place) or "the state", at(fact.retained_by)
        yield self.claim(
            fact,
            # A roll-out that nobody trains on lacks a no_grad rather than a detach: MG201 tells that.
            Severity.INFO if fact.rolled_out else Severity.WARNING,
            f"{_who(fact)} carries the graph from batch to batch: the graph of this forward reaches back over "
            f"{plural(fact.graphs, 'batch')}{_cost(fact, run)}.",
            f"{_NO_GRAD}."
            if not fact.trains
            else f"cut the graph between batches: {name} = {name}.detach() (of a tuple, each part)"
            f"{'' if fact.backward else '; if it is evaluation, run it under torch.no_grad()'}"
            f"{f'; then drop retain_graph=True from the backward at {backward}' if backward else ''}.",
            nbytes=_bytes(fact),
            bytes_per_batch=per_batch,
            count=fact.graphs,
            since=fact.first_batch,
            is_limited=fact.rolled_out,
        )


_NO_GRAD = "run it under torch.no_grad() (or torch.inference_mode()): no backward came, so the graph is unused"


def _ran_out(rule: Rule, fact: Fact) -> Iterator[Claim]:
    """Of graphs that filled the device before anything was told of them."""
    proven = from_post_mortem(rule, fact, "leak")
    if proven is not None and isinstance(fact, RanOutOfMemory) and fact.rule == rule.code:
        yield proven


def _who(fact: RetainedGraphs) -> str:
    if fact.place.file is None and fact.place.holder is None:
        node = f" (seen at {fact.node})" if fact.node else ""
        return f"something outside Python's sight, in C++ or another thread{node},"
    return holder(fact.place)


def _bytes(fact: RetainedGraphs) -> int | None:
    """What the graphs keep; unknown where it is a few numbers: the nodes, in host memory, take more."""
    return fact.bytes if (fact.bytes or 0) >= LEAST_GRAPH_BYTES * fact.graphs else None


def _per_batch(fact: RetainedGraphs) -> float | None:
    """Bytes that come with each batch; a graph may be kept of one in several only."""
    nbytes = _bytes(fact)
    if nbytes is None:
        return None
    apart = (fact.last_batch - fact.first_batch) / max(fact.graphs - 1, 1)
    return nbytes / (fact.graphs * max(apart, 1.0))


def _since(fact: RetainedGraphs) -> str:
    batches = f" (batches {fact.first_batch} to {fact.last_batch})"
    if fact.optimizer_steps:
        return f"{batches}, {plural(fact.optimizer_steps, 'optimizer step')} after the last of them was built"
    return batches


def _cost(fact: RetainedGraphs, run: Run) -> str:
    """What it takes; of a graph that is known by its depth alone, that is unknown. A few numbers are no size."""
    if fact.deepened:
        return ""
    nbytes = _bytes(fact)
    size = f": {format_bytes(nbytes)}{so_far(run)}" if nbytes is not None else ""
    if fact.backward and not fact.saves and fact.retained_by.line is None:
        return f"{size}, and the graphs' nodes in host memory" if size else ": at least their nodes, in host memory"
    return f"{size}, every saved activation included"


MOST_OF_PEAK = 0.5
"""Share of the peak from which detached outputs are worth a warning."""


@final
class MicroBatchGraph(Rule, code="MG106", name="micro-batch-graphs", evidence=Evidence.PEAK):
    """Graphs of earlier micro-batches are kept until the optimizer's step.

    What: a loop that accumulates gradients runs a forward and a backward for each micro-batch, and collects what the
    model returned (outputs, log-probabilities, an entropy) in a list or a dictionary until the step. Each of these
    tensors keeps the graph of its micro-batch alive, though its backward has run, or none ever will (a second forward
    for a metric); detached ones keep their own size, and so does what is put aside and not
    read again. Or a loop adds up the losses of its micro-batches and calls backward once, on the sum: if no loss needs
    another one, a backward for each would do.

    Why it matters: micro-batches exist so that one of them at a time needs memory. Parts of the graph through which no
    backward ran still hold their activations, and the kept tensors themselves stay on the device, so the step's peak
    grows with the number of micro-batches. It falls at every step: no curve over steps shows it.

    How to fix: keep values without a graph: ``outputs.append(output.detach())``, numbers with ``.item()``, large
    tensors on the CPU (``.detach().cpu()``); or compute the metric in the micro-batch and keep only the metric.
    """

    def learn(self, fact: Fact, run: Run) -> Iterable[Claim]:
        """Concludes from what was alive as the optimizer stepped, or long before it did."""
        if isinstance(fact, MicroBatchGraphs):
            yield self._of_sum(fact) if fact.summed else self._of_graphs(fact)
        elif isinstance(fact, MicroBatchOutputs):
            yield self._of_outputs(fact)
        elif isinstance(fact, UnreadStorages) and fact.within_step:
            yield self._of_unread(fact)

    def _of_graphs(self, fact: MicroBatchGraphs) -> Claim:
        each = fact.bytes / max(fact.graphs, 1)
        until, yet = (" until the optimizer's step", "") if fact.at_step else ("", " and the optimizer has yet to step")
        name, of_forwards = fact.place.holder or "it", fact.of_parts or (fact.unused and not fact.at_step)
        which = "forward" if of_forwards else "micro-batch"
        why = "no backward ever runs through them" if fact.unused else f"their backward has run{yet}"
        copy = "without its graph (x.detach(), or x.item() for a number)"
        if fact.unused:
            copy = "without a graph: compute it under torch.no_grad()"
        elif not fact.saves:
            copy = "on the CPU without its graph (x.detach().cpu()), or a number (x.item())"
        return self.claim(
            fact,
            severity_at_peak(fact.bytes, fact.peak_bytes),
            f"{holder(fact.place)} keeps the graphs of {plural(fact.graphs, f'earlier {which}')} alive{until}, "
            f"though {why}: {of_peak(fact.bytes, fact.peak_bytes)}, {format_bytes(each)} for each.",
            f"store what goes into {name} {copy}.",
            nbytes=fact.bytes,
            bytes_per_batch=each,
            count=fact.graphs,
        )

    def _of_sum(self, fact: MicroBatchGraphs) -> Claim:
        """One backward for all of them may be the plan: a warning where the step could do without most of it."""
        each, needless = fact.bytes / fact.graphs, fact.bytes - fact.largest_bytes
        peak, least = fact.peak_bytes, ""
        if peak:
            least = f", of a peak of {format_bytes(peak)}, which could be {format_bytes(peak - needless)} at the least"
        return self.claim(
            fact,
            Severity.WARNING if peak and needless >= MOST_OF_PEAK * peak and not fact.derived else Severity.INFO,
            f"{holder(fact.place)} adds up the losses of {plural(fact.graphs, 'micro-batch')} for one backward, and "
            f"all their graphs are alive then: {format_bytes(fact.bytes)}, {format_bytes(each)} for each{least}.",
            "if no loss needs the others, call backward() for each as soon as it is computed, scaled as it is in the "
            "sum: the gradients add up to the same, and one graph at a time is alive.",
            nbytes=needless,
            bytes_per_batch=each,
            count=fact.graphs,
            is_limited=True,
        )

    def _of_outputs(self, fact: MicroBatchOutputs) -> Claim:
        """What has no graph may be wanted for its values: it is a warning only where it is most of the peak."""
        each = fact.bytes / max(fact.outputs, 1)
        return self.claim(
            fact,
            Severity.WARNING if fact.bytes >= MOST_OF_PEAK * fact.peak_bytes else Severity.INFO,
            f"{holder(fact.place)} keeps the outputs of {plural(fact.outputs, 'earlier micro-batch')}, detached, until "
            f"the optimizer's step: {of_peak(fact.bytes, fact.peak_bytes)}, {format_bytes(each)} for each.",
            f"compute what you need of them in their micro-batch and store that in {fact.place.holder or 'it'}, or "
            "store them on the CPU (x.detach().cpu()).",
            nbytes=fact.bytes,
            bytes_per_batch=each,
            count=fact.outputs,
        )

    def _of_unread(self, fact: UnreadStorages) -> Claim:
        """What micro-batches put aside, and nobody reads again."""
        remedy = f"take each out of {fact.place.holder or 'it'} where it is read for the last time (pop)."
        return self.claim(
            fact,
            Severity.INFO if fact.numbers else severity_at_peak(fact.bytes, fact.peak_bytes),
            f"{holder(fact.place)} kept {of_peak(fact.bytes, fact.peak_bytes)} of "
            f"{plural(fact.forwards, 'micro-batch')} until the optimizer's step: later micro-batches "
            "did not read them, and they went unread.",
            REMEDY_OF_NUMBERS if fact.numbers else fact.remedy or remedy,
            nbytes=fact.bytes,
            count=fact.forwards,
        )
