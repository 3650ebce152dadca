"""MG308, MG309 and MG312: copies of the weights, old gradients, checkpoints that stay."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import final

from memguard.records.claims import Claim, Evidence
from memguard.records.facts import CheckpointKept, Fact, GatheredWeights, KeptOutputs, ModelCopies, StaleGradients
from memguard.records.findings import Severity
from memguard.records.stats import Run, limit_of
from memguard.rules.finding_text import counted, holder, in_memory, is_on_host, plural, so_far
from memguard.rules.interface import Rule
from memguard.rules.kept_storage import MIN_SHARE, Snapshots, is_large_pile, never_stops
from memguard.text.units import format_bytes
from memguard.thresholds import LARGE_SHARE

MIN_GRADIENT_SHARE = 0.05
SETS_PEAK = 0.98
"""Of the highest peak, which a forward must reach for what it finds alive to set that peak."""
NEARLY_FULL = 0.85
"""Share of the device above which the gradients' room decides whether a batch fits."""
_REMEDY = "keep copies on the CPU (v.detach().cpu().clone()) or on disk."
_REMEDY_OF_GATHERED = (
    "send or save each weight as it is gathered and let it go, or gather into host memory: get_model_state_dict(model, "
    "options=StateDictOptions(full_state_dict=True, cpu_offload=True))."
)
_REMEDY_OF_MODELS = "keep what is needed of each: its score, or model.cpu() once it is trained."


@final
class ModelCopy(Rule, code="MG308", name="model-copy", evidence=Evidence.GROWTH):
    """More copies of the model's weights are kept on the device.

    What: beside the model, tensors of the same shapes are kept: a deep copy, a ``best_state`` dictionary, an average
    of the weights, each model that a search trained, each client's copy in a simulation, merged adapters. The whole
    weights of a sharded model count too, where ``full_tensor()`` gave them or a forward gathered them that no backward
    follows. Perturbations and fast weights have these shapes as well; where the statement that makes them copies no
    weights, the message names only the shapes.

    Why it matters: each costs as much as the parameters. One average (EMA, SWA) is usually wanted; best states pile up.

    How to fix: keep copies on the CPU: ``{k: v.detach().cpu().clone() for k, v in model.state_dict().items()}``, or on
    disk. ``state_dict()`` alone is no copy: it refers to the live weights. ``model.reshard()`` frees what was gathered.
    """

    def __init__(self) -> None:
        self._snapshots = Snapshots()

    def learn(self, fact: Fact, run: Run) -> Iterable[Claim]:
        """Tells of single ones, each of which may be wanted; warns where they pile up under one name, or are large."""
        self._snapshots.learn(fact)
        if isinstance(fact, KeptOutputs) and never_stops(fact, run):
            pile = self._snapshots.explain(fact)
            if pile is not None:
                yield self._growing(fact, pile, run)
            elif fact.weights:
                yield self._more(fact, run)
        if isinstance(fact, GatheredWeights):
            yield from _of_modules(self, fact, run, limit_of(run))
        if not isinstance(fact, ModelCopies):
            return
        limit = limit_of(run)
        many = is_large_pile(fact, limit) or (limit is not None and fact.bytes >= LARGE_SHARE * limit)
        many = many or (fact.gathered and _is_large(fact.bytes, run, limit))
        others = [f"`{name}`" for name in fact.holders if name != fact.place.holder]
        where = ", ".join([holder(fact.place), *others[:3]])
        what, apart, remedy = _what(fact), "", _remedy_of_copies(run)
        if fact.alike:
            remedy = f"nothing to do if each step computes with them (perturbations, fast weights); else {remedy}"
        if fact.trained:
            what = f"{counted(fact, fact.copies, 'model')} of the same shapes"
            apart = f", with gradients of {'its' if fact.copies == 1 else 'their'} own,"
            remedy = f"nothing to do if they are trained together; else {_REMEDY_OF_MODELS}"
        yield self.claim(
            fact,
            Severity.WARNING if many and not fact.averaged else Severity.INFO,
            f"the whole weights of the sharded model ({format_bytes(fact.bytes)}), gathered from all ranks, are kept "
            f"{in_memory(run)} beside its shards, in {where}."
            if fact.gathered
            else f"{what} ({format_bytes(fact.bytes)}){apart} {_are(fact, run)}, in {where}"
            f"{_wanted(fact) if fact.averaged else ''}.",
            _REMEDY_OF_GATHERED if fact.gathered else remedy,
            nbytes=fact.bytes,
            evidence=Evidence.HELD,
            count=fact.copies,
            is_limited=fact.averaged or fact.trained or fact.alike,
        )

    def _growing(self, fact: KeptOutputs, pile: ModelCopies, run: Run) -> Claim:
        """Copies that nobody clears: however small they are, more come."""
        each = fact.bytes_per_batch
        if fact.measured and fact.bytes > pile.bytes:
            pile = replace(pile, copies=max(fact.tensors, pile.copies), bytes=fact.bytes, estimated=fact.estimated)
        return self.claim(
            replace(fact, place=pile.place),
            Severity.WARNING,
            f"{_what(pile)} ({format_bytes(pile.bytes)}) {_are(pile, run)}, in {holder(pile.place)}, and more come: "
            f"{format_bytes(each)} with every batch.",
            _remedy_of_copies(run),
            nbytes=pile.bytes,
            bytes_per_batch=each,
            count=pile.copies,
            batches_left=fact.batches_left,
            names=fact.parts,
        )

    def _more(self, fact: KeptOutputs, run: Run) -> Claim:
        """Models of which more come, and nothing else is known: neither copies, nor seen to be trained before."""
        limit = limit_of(run)
        # A cache may give them back in each round: the room that they take decides.
        is_remark = fact.cached or (limit is not None and fact.bytes < MIN_SHARE * limit)
        return self.claim(
            fact,
            Severity.INFO if is_remark else Severity.WARNING,
            f"{holder(fact.place)} keeps {counted(fact, fact.tensors, 'model')} with their weights {in_memory(run)}: "
            f"{format_bytes(fact.bytes)}{so_far(run)}, and more come: at least {format_bytes(fact.bytes_per_batch)} "
            "with every batch.",
            _REMEDY_OF_MODELS,
            nbytes=fact.bytes,
            bytes_per_batch=fact.bytes_per_batch,
            count=fact.tensors,
            batches_left=fact.batches_left,
            names=fact.parts,
        )


def _remedy_of_copies(run: Run) -> str:
    return "keep the one that is needed, or write it to disk." if is_on_host(run) else _REMEDY


def _what(copies: ModelCopies) -> str:
    if copies.alike:
        return f"{counted(copies, copies.copies, 'set')} of tensors of the shapes of the model's weights"
    return f"{counted(copies, copies.copies, 'copy')} of the model's weights"


def _wanted(averages: ModelCopies) -> str:
    if averages.changing:
        return ": an average of the weights, usually wanted"
    return ": by its name an average of the weights, a teacher or a target, usually wanted"


def _are(copies: ModelCopies, run: Run) -> str:
    return f"{'is' if copies.copies == 1 else 'are'} {in_memory(run)} beside the model"


@final
class StaleGradient(Rule, code="MG309", name="stale-gradients", evidence=Evidence.PEAK):
    """Gradients are alive through the whole forward.

    What: the gradients of the last step exist where the peak comes, in the forward: ``zero_grad()`` comes after it,
    or it fills them with zeros (``set_to_none=False``). Or an evaluation sets the run's peak, with the gradients of the
    step before beside it.

    Why it matters: they add the size of the trainable parameters to the activations, at the moment of the peak.

    How to fix: ``optimizer.zero_grad()`` (which sets them to None) right after ``optimizer.step()`` or before the
    forward. When gradients are accumulated on purpose, nothing is to be done.
    """

    def learn(self, fact: Fact, run: Run) -> Iterable[Claim]:
        """Compares the gradients with the peak; a warning only where their room is needed."""
        peak = run.peak_bytes or 0
        if not isinstance(fact, StaleGradients) or fact.bytes < MIN_GRADIENT_SHARE * peak:
            return
        limit = limit_of(run)
        # A peak that comes later, in the optimizer's step, has gradients of its own: the old ones are gone by then.
        needed = limit is not None and min(peak, fact.peak_bytes or peak) >= NEARLY_FULL * limit
        is_full = limit is not None and peak >= NEARLY_FULL * limit
        sets_peak = fact.zeroed or (fact.peak_bytes or peak) >= SETS_PEAK * peak
        if fact.lightning or not (is_full or sets_peak):
            return  # Lightning's own order of calls; or the peak comes when they are gone, and there is room
        yield self.claim(
            fact,
            Severity.WARNING if needed else Severity.INFO,
            f"the last step's gradients ({format_bytes(fact.bytes)}) are alive through the whole "
            f"{'evaluation, which sets the peak' if fact.stage.evaluates else 'forward'}: {_why(fact)}.",
            "call optimizer.zero_grad() with its default set_to_none=True right after step()."
            if fact.stage.evaluates
            else "call optimizer.zero_grad() with its default set_to_none=True before the forward, or right after "
            "step().",
            nbytes=fact.bytes,
        )


def _why(fact: StaleGradients) -> str:
    if fact.stage.evaluates:
        return "zero_grad() comes with the next step"
    if fact.zeroed:
        return "they are zeroed in place (set_to_none=False)"
    return "zero_grad() comes after the forward"


@final
class CheckpointOnDevice(Rule, code="MG312", name="checkpoint-on-device", evidence=Evidence.HELD):
    """A checkpoint was loaded onto the device and is kept.

    What: ``torch.load`` put a checkpoint's tensors onto the device, and they are still alive batches later.

    Why it matters: weights and optimizer state exist twice for the whole run.

    How to fix: ``torch.load(path, map_location="cpu", mmap=True)``, then ``load_state_dict`` and ``del checkpoint``.
    """

    def learn(self, fact: Fact, run: Run) -> Iterable[Claim]:
        """Concludes from a checkpoint that outlived some batches."""
        if not isinstance(fact, CheckpointKept):
            return
        limit, on_host = limit_of(run), is_on_host(run)
        where = "into memory" if on_host else "onto the device"
        how = "mmap=True" if on_host else 'map_location="cpu" (and mmap=True)'
        yield self.claim(
            fact,
            Severity.WARNING if limit is None or fact.bytes >= MIN_SHARE * limit else Severity.INFO,
            f"{holder(fact.place, 'a checkpoint')} was loaded {where} and still holds "
            f"{format_bytes(fact.bytes)} in batch {fact.batch}.",
            f"load it with {how}, and del it after load_state_dict.",
            nbytes=fact.bytes,
        )


def _is_large(nbytes: int, run: Run, limit: int | None) -> bool:
    """Whether gathered weights are worth a warning."""
    most = min((size for size in (limit, run.peak_bytes) if size), default=None)
    return most is not None and nbytes >= LARGE_SHARE * most


def _of_modules(rule: Rule, fact: GatheredWeights, run: Run, limit: int | None) -> Iterable[Claim]:
    """What is said of those that FSDP gathered, and nothing let go."""
    name = (fact.name or "the model").rpartition(".")[2]
    yield rule.claim(
        fact,
        Severity.WARNING if _is_large(fact.bytes, run, limit) else Severity.INFO,
        f"{plural(fact.parameters, 'weight')} of the sharded model {f'`{fact.name}` ' if fact.name else ''}"
        f"({format_bytes(fact.bytes)}) stay gathered {in_memory(run)} after its forward, from one optimizer step to "
        "the next: no backward comes to free them.",
        f"call {name}.reshard() after its forward, or shard its outermost module with fully_shard({name}, "
        "reshard_after_forward=True).",
        nbytes=fact.bytes,
        name=fact.name,
        evidence=Evidence.HELD,
        count=fact.parameters,
    )
