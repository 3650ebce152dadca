"""What to let go of, where something keeps the memory that was lacking: a list, a total, an exception, a model."""

from __future__ import annotations

from dataclasses import replace

from memguard.postmortem.scene import KeptTensors, Scene
from memguard.postmortem.verdict import Advice, Cause, Verdict
from memguard.records.facts import Place
from memguard.records.findings import Finding
from memguard.text.places import place_text

_KINDS = {
    "MG101": "detach-kept",
    "MG102": "detach",
    "MG106": "detach-kept",
    "MG301": "cpu",
    "MG302": "cpu",
    "MG306": "bound",
    "MG501": "bound",
}
"""What the advice of a finding asks for, by its rule."""


def let_go(scene: Scene, verdict: Verdict) -> Advice:
    """What to change where something keeps the memory that was lacking."""
    where, place, hoard = at(verdict.place), verdict.place, verdict.hoard
    holder, kind = place.holder, "let-go"
    if verdict.cause is Cause.KEPT_EXCEPTION:
        kind = "exception"
        if verdict.exception is not None and verdict.exception.handling:
            text = (
                "leave the except block before trying again: set a flag inside it, and retry after it (or use "
                "memguard.find_batch_size). What the failed call held is free then."
            )
        else:
            kept = f" in `{holder}`" if holder else ""
            text = f"do not keep the exception{kept}{where}: keep str(error), or set error.__traceback__ = None."
    elif verdict.cause is Cause.VALIDATION_GRAPH:
        kind, text = "no_grad", f"put the forward{where} under `with torch.no_grad():`"
        guarded = scene.validation == "guard" or not scene.stage.evaluates
        text += "." if guarded else ', or pass validation="guard" and memguard does it.'
    elif verdict.cause is Cause.SEVERAL_MODELS:
        names = sorted({model.holder for model in verdict.models if model.holder})
        who = f" ({', '.join(f'`{name}`' for name in names[:3])})" if names else ""
        kind, text = "models", f"let go of the models you are done with{who}, or keep them on the CPU: `del` model and "
        text += "optimizer, or `model.to('cpu')`."
        place = replace(place, holder=names[0]) if names else place
    elif hoard is not None and hoard.reset and not hoard.graph:
        kind, place = "reset", replace(place, holder=hoard.reset)
        text = f"call `{hoard.reset}.reset()` when its epoch is over: what it collects is kept until then."
    elif verdict.finding is not None and hoard is None and holder and _values_fill(scene, verdict.finding):
        kind = "cpu"
        text = (
            f"keep numbers in `{holder}`{where} (`.item()`), or its tensors on the CPU and without their graph "
            "(`tensor.detach().cpu()`): the values themselves fill the device, not their graphs."
        )
    elif verdict.finding is not None and _is_enough(verdict.finding, hoard):
        kind, text = _KINDS.get(verdict.finding.code, kind), verdict.finding.advice
        kind = "cpu" if kind == "detach-kept" and ".cpu()" in text else kind  # to detach would not be enough
    elif hoard is not None and holder and hoard.feeds:
        kind = "detach" if hoard.feeds == "carried" else "number"
        text = _cut_feedback(hoard, holder, where, evaluates="forwards" in verdict.evidence)
    elif hoard is not None and holder and hoard.graph and "forwards" in verdict.evidence:
        called = scene.objects.call_site
        kind, place = "no_grad", replace(called, holder=holder) if called.file else place
        text = (
            f"put the forward{at(place)} under `with torch.no_grad():` if only values of what `{holder}` keeps are "
            "used; if a backward is to come, let it come after fewer forwards."
        )
    elif hoard is not None and holder:
        copy = "tensor.detach().cpu()" if hoard.attached else "tensor.cpu()"
        what = "store them without their graph: `tensor.detach()`" if hoard.graph else f"on the CPU: `{copy}`"
        kind = "detach-kept" if hoard.graph else "cpu"
        text = f"do not let `{holder}`{where} keep tensors of every batch on the device: {what}, or a bounded number."
    else:
        text = "find what keeps tensors of every batch (a list, a total of losses, a cache), and store numbers instead."
    return Advice(kind=kind, text=text, place=place, gain_bytes=verdict.bytes or None)


def _is_enough(finding: Finding, hoard: KeptTensors | None) -> bool:
    """Whether what a finding advises helps here: to detach does not where the values are most of what is kept."""
    only_detaches = finding.code == "MG101" and hoard is not None and hoard.tensors >= 3 and not hoard.graph
    return bool(finding.advice and finding.holder) and not only_detaches


def _values_fill(scene: Scene, finding: Finding) -> bool:
    """Whether what is kept with graphs takes its room by its own values: to detach it would not be enough."""
    owners = scene.objects.owners
    return finding.code == "MG101" and owners.get("outputs", 0) > owners.get("activations", 0)


def _cut_feedback(hoard: KeptTensors, holder: str, where: str, *, evaluates: bool) -> str:
    if hoard.feeds == "carried":
        cut = f"where `{holder}` goes into the next {'turn' if evaluates else 'batch'}{where}"
        text = f"cut the graph {cut}: `{holder} = {holder}.detach()`."
        return f"{text} Where nothing is trained, put it under `with torch.no_grad():`." if evaluates else text
    number = f"add numbers to `{holder}`{where}: `.item()` of what is added."
    if evaluates:
        return f"{number} If this is an evaluation, put it under `with torch.no_grad():` and call model.eval()."
    return number


def at(place: Place) -> str:
    """A place in words, like `` at train.py:41``; an empty text where it is not known."""
    if place.file is None:
        return ""
    return f" at {place_text(place.file, place.line)}"
