"""MG101 and MG102: graphs of earlier batches that something keeps alive."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import ClassVar, final

from memguard.records.claims import Claim, Evidence
from memguard.records.facts import Fact, FunctionContextHolds, Place, RanOutOfMemory, RetainedGraphs
from memguard.records.findings import Severity
from memguard.records.stats import Run
from memguard.rules.finding_text import at, from_post_mortem, holder, in_code, plural, so_far
from memguard.rules.interface import Rule
from memguard.text.units import format_bytes

LEAST_GRAPH_BYTES = 512
"""Of one graph on the device, the smallest block of its allocator: less is the number that it ends in."""


@final
class RetainedGraph(Rule):
    """Graphs of earlier batches are kept alive.

    What: a tensor with an autograd graph is stored for longer than its batch: a running sum (``total += loss``), a
    list of losses or outputs, a dictionary, a meter, a hook that collects activations. The rule reports eight graphs
    that are still alive three optimizer steps after the last of them was built; three to five graphs that are kept
    only now and then, if an optimizer step has passed and nothing empties what keeps them; and 24 graphs kept for one
    gradient of their sum, without a step between them.

    Why it matters: each stored tensor keeps its whole graph. If no backward ran through it, that is every activation
    of its forward, on the device; after a backward it is the graph's nodes, in host memory, and the tensor itself. It
    grows with every batch until memory is full.

    How to fix: store a value, not a graph: ``total += loss.detach()`` or ``losses.append(loss.detach())``;
    ``loss.item()`` if a number will do and a synchronisation is acceptable; ``.detach().cpu()`` for large outputs. Of
    a sum take the gradient of each part separately, and add them up.
    """

    code: ClassVar[str] = "MG101"
    name: ClassVar[str] = "retained-graph"

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
        what = f"a graph that got longer over {_of_what(fact)}"
        if not fact.deepened:
            what = f"the graphs of {_of_what(fact)} alive"
        message = f"{_who(fact)} keeps {what}{_since(fact)}{_cost(fact, run)}."
        name = fact.place.holder or "it"
        advice = (
            f"store the value without its graph: detach what goes into {name} (x.detach(), or x.item() for a number)"
        )
        if re.search(r"\bregister_\w*hook\s*\(", fact.place.source or "") and "append" not in (fact.place.source or ""):
            advice = "keep the handle that the registration returns, and call handle.remove() when the batch is done"
        if fact.together:
            advice = (
                "take the gradient of each batch separately and add the gradients up: the result is the same, with one "
                "graph in memory at a time"
            )
        elif not fact.trains:
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
            evidence=Evidence.GROWTH,
            count=fact.graphs,
            since=fact.first_batch,
            is_limited=known,
        )


@final
class CarriedState(Rule):
    """A recurrent state is carried over batches without detach.

    What: a hidden state, a memory or a moving average is computed in one batch and used in the next with its graph, so
    each new graph contains all the earlier ones. This also happens if it is detached where it is read (a centre, class
    prototypes, the rows of a graph network's memory) but not where it is written, and to a vector that is multiplied
    by a Hessian again and again.

    Why it matters: memory and the time of backward grow with every batch; a backward either fails on weights that were
    changed in place, or runs through the whole past.

    How to fix: cut the graph where the batch ends: ``hidden = hidden.detach()``, for a tuple
    ``hidden = tuple(h.detach() for h in hidden)``.
    """

    code: ClassVar[str] = "MG102"
    name: ClassVar[str] = "carried-state"

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
            f"{_of_what(fact)}{_cost(fact, run)}.",
            f"{_NO_GRAD}."
            if not fact.trains
            else f"cut the graph between batches: {name} = {name}.detach() (of a tuple, each part)"
            f"{'' if fact.backward or fact.together else '; if it is evaluation, run it under torch.no_grad()'}"
            f"{f'; then drop retain_graph=True from the backward at {backward}' if backward else ''}.",
            nbytes=_bytes(fact),
            bytes_per_batch=per_batch,
            evidence=Evidence.GROWTH,
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


def _of_what(fact: RetainedGraphs) -> str:
    return plural(fact.graphs, "forward" if fact.together else "batch")


def _bytes(fact: RetainedGraphs) -> int | None:
    """What the graphs keep; unknown where it is a few numbers: the nodes, in host memory, take more."""
    return fact.bytes if (fact.bytes or 0) >= LEAST_GRAPH_BYTES * fact.graphs else None


def _per_batch(fact: RetainedGraphs) -> float | None:
    """Bytes that come with each batch; a graph may be kept of one in several only."""
    nbytes = _bytes(fact)
    if nbytes is None or fact.together:
        return None
    apart = (fact.last_batch - fact.first_batch) / max(fact.graphs - 1, 1)
    return nbytes / (fact.graphs * max(apart, 1.0))


def _since(fact: RetainedGraphs) -> str:
    if fact.together:
        return f" at the same time (batch {fact.last_batch})"
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
