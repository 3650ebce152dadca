"""MG103, MG104 and MG105: saved tensors and gradients that outlive a backward."""

from __future__ import annotations

from collections.abc import Iterable
from typing import final

from memguard.records.claims import Claim, Evidence
from memguard.records.facts import Fact, FunctionContextHolds, GradientsWithGraph, SavedAfterBackward
from memguard.records.findings import Severity
from memguard.records.stats import Run
from memguard.rules.finding_text import at, plural
from memguard.rules.interface import Rule
from memguard.text.units import format_bytes


@final
class RetainGraph(Rule, code="MG103", name="retain-graph", evidence=Evidence.PEAK):
    """Saved tensors are still held after backward.

    What: the last backward through a graph ran with ``retain_graph=True`` (or a second backward kept its buffers), and
    the graph is still there when the next forward begins.

    Why it matters: backward normally frees each saved activation as it goes. Retained, the whole graph of the last
    batch is kept beside the one that is being built: the peak holds two.

    How to fix: add the losses up and call backward once, or leave ``retain_graph=True`` out of the last backward of
    each batch; ``del loss`` before the next forward helps too. Where it is needed because a state is carried over
    the batches (MG102), detach the state first. Where a GAN's second loss needs the generator's graph, give the
    discriminator ``fake.detach()`` in its own step.
    """

    def __init__(self) -> None:
        self._seen = self._in_batch = 0

    def learn(self, fact: Fact, run: Run) -> Iterable[Claim]:
        """Concludes when it happened in two batches: once may be a look at the graph."""
        if not isinstance(fact, SavedAfterBackward):
            return
        # Within a batch it is a remark alone: what stands in no model's graph may have been kept for, and runs again.
        within = fact.same_batch and not fact.part
        self._in_batch, self._seen = self._in_batch + within, self._seen + (not within)
        times = self._in_batch if within else self._seen
        if times < 2 and not (fact.part and fact.place.holder):  # a part is weighed before, and has a name then
            return
        size = f"{format_bytes(fact.bytes)} in {plural(fact.tensors, 'tensor')}" if fact.bytes else "its saved tensors"
        where, name = at(fact.place), fact.place.holder
        keeps = f"the backward{f' at {where}' if where else ''} keeps its graph"
        by = f" by `{name}`" if name else ""
        if within:
            message = (
                f"{keeps}, and no later one runs through it: {format_bytes(fact.bytes)} are still held{by} when the "
                "model's next forward of the same batch begins, so two graphs exist at the same time."
            )
            advice = "drop retain_graph=True from the last backward through each forward."
        elif fact.carried:
            message = (
                f"{keeps}, and the next batch's backward runs through it again: a state is carried over without detach "
                f"({size} are still held)."
            )
            advice = "detach the state where the batch ends; then retain_graph=True can go."
        elif fact.part:
            message = (
                f"{keeps}, for a later one runs through a part of it again; of the rest, {size} are held without use"
                f"{by} while the next forward runs."
            )
            advice = (
                "add the losses of one model up and call backward once, or give the model that this backward trains an "
                "input without that part's graph (fake.detach(), as GANs do); then retain_graph=True can go."
            )
        else:
            message = f"{keeps}: {size} are still held{by} when the next forward begins, so two graphs exist"
            message += " at the same time."
            let_go = f"; or let {name} go before the next forward (del {name})" if name and name.isidentifier() else ""
            advice = (
                "drop retain_graph=True from the last backward of the batch, or sum the losses and call backward once"
                f"{let_go}."
            )
        severity = Severity.INFO if within or fact.carried or fact.part else Severity.WARNING
        yield self.claim(fact, severity, message, advice, nbytes=fact.bytes or None)


@final
class CreateGraphCycle(Rule, code="MG104", name="create-graph-cycle"):
    """``backward(create_graph=True)`` ties parameters and gradients into a cycle.

    What: gradients carry a graph of their own at the end of a batch, so a parameter, or an input that requires grad,
    holds its gradient, and the gradient's graph holds it.

    Why it matters: parameter and gradient hold each other in C++, where neither reference counting nor the garbage
    collector frees them. While the model is in use, its graph stays until the gradients are taken away; of a model that
    is thrown away with its gradients (a copy for each task), or such an input, the graphs stay to the end of the
    process.

    How to fix: use ``torch.autograd.grad(loss, parameters, create_graph=True)`` instead, or set every ``.grad`` to None
    when the batch is done, and before the model goes.
    """

    def learn(self, fact: Fact, run: Run) -> Iterable[Claim]:
        """Concludes from gradients that carry a graph."""
        if not isinstance(fact, GradientsWithGraph):
            return
        where, name = at(fact.place), fact.place.holder or "p"
        leaf = fact.place.holder or "the weights of a copy, an input that requires grad"
        if fact.graphs:
            yield self.claim(
                fact,
                Severity.WARNING,
                f"the backward at {where} with create_graph=True leaves gradients that carry a graph on tensors that "
                f"are thrown away ({leaf}): tensor and gradient hold each other, and so the graphs of "
                f"{plural(fact.graphs, 'batch')} are alive, which not even the garbage collector frees.",
                f"use torch.autograd.grad(loss, inputs, create_graph=True) there, or set {name}.grad = None for each "
                "of them before it goes.",
            )
            return
        by = f" (the backward at {where})" if where else ""
        gradients = f"the gradients of {plural(fact.parameters, 'parameter')} carry a graph"
        if fact.cleared:
            message = (
                f"{gradients}{by}: create_graph=True keeps the whole graph of the batch through the optimizer's step, "
                "until zero_grad() breaks the cycle of parameter and gradient."
            )
            advice = (
                "torch.autograd.grad(..., create_graph=True) makes no such cycle; a step that is skipped leaves none "
                "behind then."
            )
        else:
            message = (
                f"{gradients} at the end of the batch{by}: create_graph=True ties parameter and gradient into a cycle "
                f"that is not freed until the gradients are removed ({format_bytes(fact.bytes)} of gradients, and "
                "their graphs)."
            )
            advice = (
                "use torch.autograd.grad(..., create_graph=True), or set p.grad = None for all parameters after the "
                "step (optimizer.zero_grad() does)."
            )
            if ".grad(" in (fact.place.source or ""):  # what torch.autograd.grad gave is put there by hand
                advice = (
                    "put them there without their graph (p.grad = g.detach()), and drop create_graph=True if nothing "
                    "differentiates them."
                )
        severity = Severity.INFO if fact.cleared else Severity.WARNING
        yield self.claim(fact, severity, message, advice, nbytes=fact.bytes, evidence=Evidence.PEAK)


@final
class FunctionContext(Rule, code="MG105", name="function-context", evidence=Evidence.PEAK):
    """A custom autograd.Function stores tensors on ctx.

    What: the forward of a ``torch.autograd.Function`` keeps tensors as attributes (``ctx.x = x``) instead of with
    ``ctx.save_for_backward``.

    Why it matters: backward frees what was saved with save_for_backward, not attributes: they live as long as the
    graph. If one of them is the function's own output, node and tensor hold each other, and only the garbage collector
    frees them.

    How to fix: ``ctx.save_for_backward(x)`` in forward and ``x, = ctx.saved_tensors`` in backward; only numbers, shapes
    and flags belong on ctx.
    """

    def learn(self, fact: Fact, run: Run) -> Iterable[Claim]:
        """Concludes from tensors found on a node's context."""
        if not isinstance(fact, FunctionContextHolds):
            return
        names = ", ".join(f"ctx.{name}" for name in fact.attributes[:4])
        circle = "one is its own output: a cycle that only the garbage collector frees"
        how = circle if fact.cycle else "backward does not free them"
        yield self.claim(
            fact,
            Severity.WARNING,
            f"{fact.function_name} keeps {names} ({format_bytes(fact.bytes)} a call) as attributes of its context; "
            f"{how}.",
            f"pass them to ctx.save_for_backward(...) in {fact.function_name}.forward and read ctx.saved_tensors in "
            "backward.",
            nbytes=fact.bytes,
            name=f"{fact.function_name} ctx.{fact.attributes[0]}" if fact.attributes else fact.function_name,
        )
