"""MG201 and MG202: graphs that no backward used."""

from __future__ import annotations

from collections.abc import Iterable
from typing import final

from memguard.records.claims import Claim, Evidence
from memguard.records.facts import Fact, UntakenGradients, UnusedGraphs
from memguard.records.findings import Severity
from memguard.records.stats import Run, limit_of
from memguard.rules.finding_text import at, of_peak, plural, severity_at_peak
from memguard.rules.interface import Rule
from memguard.text.units import format_bytes
from memguard.thresholds import NOTABLE_SHARE, least_of_device, much_of

_ADVICE = "put the evaluation under `with torch.no_grad():`, or decorate its function with @torch.no_grad()."
_ADVICE_ON_VALUES = "put them under `with torch.no_grad():`, or decorate their function with @torch.no_grad()."


@final
class EvalGraph(Rule, code="MG201", name="eval-graph"):
    """An evaluation built a graph that no backward used.

    What: forwards in eval mode ran with gradients enabled, and their graphs were freed without a backward.
    ``model.eval()`` switches dropout and batch norm, not autograd. Two more cases count: a series of such forwards
    in training mode (an evaluation that forgot ``eval()`` too); and one call of a model that other calls train, if only
    the values of this call are used and its graph is the largest.

    Why it matters: every activation of the forward is saved for a backward that never comes. Evaluation then needs
    about as much memory as training, often more, for its batches are larger, and the variable that holds the last
    output keeps a second graph during the next forward.

    How to fix: put the loop under ``with torch.inference_mode():`` (or ``torch.no_grad()``), or decorate the function
    with ``@torch.no_grad()``. Where a derivative is taken (forces, residuals) the model's graph is needed in evaluation
    too, but not the derivative's own: ``create_graph=self.training``. In training a derivative of which the values
    alone are used (first-order inner steps, a penalty that is only logged) needs no ``create_graph`` either.
    """

    def __init__(self) -> None:
        self._told = _Told()

    def learn(self, fact: Fact, run: Run) -> Iterable[Claim]:
        """Concludes from graphs of the evaluated model."""
        if not isinstance(fact, UnusedGraphs) or fact.frozen or self._told.differently(fact):
            return
        where = at(fact.place)
        called = f"{fact.module}{f', called at {where},' if where else ''}"
        advice = _ADVICE
        if fact.alone:
            advice = "put this call alone under `with torch.no_grad():`, for other calls there need their graphs."
        if fact.prevented:
            yield self.claim(
                fact,
                Severity.WARNING,
                f"{called} was evaluated with gradients enabled: its graph would save every activation for a backward "
                "that never comes. memguard does it for you: such forwards run without a graph from now on.",
                advice,
                name=fact.module,
                since=fact.first_batch,
            )
            return
        most = "up to " if fact.derivative and fact.training else ""
        size = f", {most}{format_bytes(fact.bytes)} each" if fact.bytes else ""
        if fact.bytes and fact.alive > 1:
            size += f" and {fact.alive} alive at the same time"
        if fact.derivative:
            yield self._derivative(fact, run, size)
            return
        if fact.training:
            yield self._in_training(fact, run, f"{called} built at least {plural(fact.count, 'graph')}", size)
            return
        yield self.claim(
            fact,
            Severity.WARNING,
            f"{called} built at least {plural(fact.count, 'graph')} in eval mode that "
            f"{'something keeps though no backward used them' if fact.kept else 'died without a backward'}{size}: "
            "gradients are enabled there, and every activation was saved for nothing.",
            advice,
            nbytes=fact.bytes,
            evidence=Evidence.PEAK,
            name=fact.module,
            since=fact.first_batch,
        )

    def _in_training(self, fact: UnusedGraphs, run: Run, built: str, size: str) -> Claim:
        nbytes = fact.bytes and fact.bytes * fact.alive
        is_small = nbytes is not None and nbytes < NOTABLE_SHARE * (run.peak_bytes or 0)  # of one layer, say
        if fact.alone:
            message = (
                f"{built} in training that died without a backward{size}, while backwards run through those of its "
                "other calls: of this one the values alone are used."
            )
            advice = "put this call alone under `with torch.no_grad():`, for other calls of it need their graphs."
        else:
            message = (
                f"{built} in a row, in training mode, that died without a backward{size}: of these forwards the values "
                "alone are used."
            )
            advice = f"{_ADVICE_ON_VALUES} In an evaluation call model.eval() before, and model.train() after it."
        return self.claim(
            fact,
            Severity.INFO if is_small else Severity.WARNING,
            message,
            advice,
            nbytes=nbytes,
            name=fact.module,
            since=fact.first_batch,
            evidence=Evidence.PEAK,
        )

    def _derivative(self, fact: UnusedGraphs, run: Run, size: str) -> Claim:
        where, limit = at(fact.place), limit_of(run)
        least = least_of_device(limit)
        mode, advice = "eval mode", "build that graph in training alone: create_graph=self.training."
        if fact.training:
            mode, least = "training", min(least, much_of(fact.peak_bytes or limit or 0))
            advice = "leave create_graph=True out, for its values alone are used; where a later backward goes through "
            advice += "the same forward, retain_graph=True keeps that one's graph."
        return self.claim(
            fact,
            Severity.WARNING if (fact.bytes or 0) >= least else Severity.INFO,
            f"a derivative of {fact.module} is taken in {mode} with a graph of its own"
            f"{f', at {where}' if where else ''}: at least {plural(fact.count, 'graph')} of it died without a "
            f"backward{size}. Without create_graph the derivative frees the activations as it goes.",
            advice,
            nbytes=fact.bytes,
            evidence=Evidence.PEAK,
            name=fact.place.holder or fact.module,
            since=fact.first_batch,
        )


@final
class FrozenModelGraph(Rule, code="MG202", name="frozen-model-graph", evidence=Evidence.PEAK):
    """A frozen model or teacher builds a graph that training does not use.

    What: in every training step a second model (a teacher, a reference or target network, a frozen encoder) runs with
    gradients enabled, and no backward ever runs through its graph. A backward that leaves gradients on weights that no
    optimizer holds counts too: of a whole model, or of a backbone under adapters. So does one that leaves gradients
    which are dropped: of a generator in the step of its critic, without ``detach()``.

    Why it matters: all its activations are saved until its output dies: with a teacher larger than the student that
    is most of the step's memory.

    How to fix: call it under ``with torch.no_grad():`` and freeze it with ``teacher.requires_grad_(False)``.
    """

    def __init__(self) -> None:
        self._told = _Told()
        self._modules: set[str] = set()
        """Classes of the models that were told."""
        self._gradients_bytes = 0
        """Gradients of the weights in them that were reported."""

    def learn(self, fact: Fact, run: Run) -> Iterable[Claim]:
        """Concludes from graphs of a model that others are trained beside."""
        if isinstance(fact, UntakenGradients):
            told = fact.whole and fact.module in self._modules
            if not told and fact.bytes > 2 * self._gradients_bytes:
                yield self._untaken(fact)
        if not isinstance(fact, UnusedGraphs) or not fact.frozen or self._told.differently(fact):
            return
        self._modules.add(fact.module)
        where, called = at(fact.place), fact.place.holder or fact.module
        freeze = "call requires_grad_(False) on it where it is made"
        if fact.place.holder is not None:
            freeze = f"{fact.place.holder}.requires_grad_(False)"
        if fact.dropped:
            yield self._dropped(fact, called)
            return
        if fact.gradients_bytes is not None:
            self._gradients_bytes += fact.gradients_bytes
            yield self.claim(
                fact,
                Severity.WARNING,
                f"{called}{f', called at {where},' if where else ''} gets gradients "
                f"({format_bytes(fact.gradients_bytes)}) in every backward though no optimizer holds its weights: its "
                f"graph{f' of {format_bytes(fact.bytes)}' if fact.bytes else ''} is built and run through for nothing.",
                f"call it under `with torch.no_grad():`, and freeze it once: {freeze}.",
                nbytes=fact.gradients_bytes + (fact.bytes or 0),
                evidence=Evidence.HELD,  # the gradients never go
                name=called,
                is_limited=True,
            )
            return
        size = f" of {format_bytes(fact.bytes)}" if fact.bytes else ""
        yield self.claim(
            fact,
            Severity.WARNING,
            f"{called}{f', called at {where},' if where else ''} builds a graph{size} in training that no backward "
            f"uses, seen in {plural(fact.count, 'forward')}, while other models are trained: it serves as a frozen "
            "model.",
            f"call it under `with torch.no_grad():`, and freeze it once: {freeze}.",
            nbytes=fact.bytes,
            name=called,
            since=fact.first_batch,
        )

    def _dropped(self, fact: UnusedGraphs, called: str) -> Claim:
        """A generator in its critic's step, an actor in the target of its critic."""
        where, nbytes = at(fact.place), fact.bytes or 0
        return self.claim(
            fact,
            severity_at_peak(nbytes, fact.peak_bytes),
            f"{called}{f', called at {where},' if where else ''} builds a graph of "
            f"{of_peak(nbytes, fact.peak_bytes)} in the step of another model. The backward runs through it, and "
            "zero_grad() drops these gradients before its own step.",
            "call it under `with torch.no_grad():` there, or detach what it answers (x.detach()).",
            nbytes=fact.bytes,
            name=called,
            since=fact.first_batch,
        )

    def _untaken(self, fact: UntakenGradients) -> Claim:
        """Weights that were to be frozen: what their gradients take counts, for they never go."""
        where, number = at(fact.place), plural(fact.parameters, "parameter")
        get, them = ("gets", "it") if fact.parameters == 1 else ("get", "them")
        if fact.whole:
            who = f"of {fact.module}{f', made at {where},' if where else ''} {number}"
            advice = "freeze it once: call requires_grad_(False) on it where it is made."
        else:
            who = f"{number} of {fact.module}"
            advice = "freeze them where the optimizer is made: p.requires_grad_(False) for each that it does not get."
        return self.claim(
            fact,
            severity_at_peak(fact.bytes, fact.peak_bytes),
            f"{who} {get} gradients in every backward though no optimizer holds {them}, and nothing takes these away: "
            f"{of_peak(fact.bytes, fact.peak_bytes)}.",
            advice,
            nbytes=fact.bytes,
            evidence=Evidence.HELD,
            name=fact.module,
            count=fact.parameters,
            is_limited=True,
        )


@final
class _Told:
    """The lines that were told, each for one model: parts that one call runs through are one cause."""

    __slots__ = ("_lines",)

    def __init__(self) -> None:
        self._lines: dict[tuple[str | None, int | None], tuple[str, str | None]] = {}

    def differently(self, fact: UnusedGraphs) -> bool:
        """Whether a fact's line was told for another model."""
        place, who = fact.place, (fact.module, fact.place.holder)
        return place.file is not None and self._lines.setdefault(place.where, who) != who
