"""Whether memory ran out because something keeps what each batch leaves."""

from __future__ import annotations

import itertools

from memguard.postmortem.evidence import floor_growth, floors_of, inputs_grew, largest_batch_bytes
from memguard.postmortem.scene import KeptTensors, Scene
from memguard.postmortem.verdict import Cause, Verdict, matters, strongest_finding
from memguard.records.facts import NOWHERE, Place
from memguard.text.units import format_bytes

LEAKS = ("MG101", "MG102", "MG103", "MG104", "MG105", "MG106", "MG301", "MG302", "MG306", "MG501")
"""Rules whose finding explains a floor that rose."""
FEW, ENOUGH = 3, 6
"""Finished batches: from the first on equal rises are worth a thought, from the second on they speak for themselves."""
MOST_OF_IT = 0.5
"""Share of the allocated bytes from which one container is what filled the device."""
SOON = 0.5
"""What is free, as a share of such a container: less would only have put the end off, in whatever pieces it lies."""
MANY_FORWARDS = 4
"""Times the forwards of a usual batch, from which their number is remarkable."""
MANY_FIRST_FORWARDS = 32
"""The same where no training batch was finished yet."""


def find_leak(scene: Scene) -> Verdict | None:
    """A floor that rose from batch to batch, with what is known to keep it up."""
    growth, batches, per_batch = floor_growth(scene)
    bounded = [hoard for hoard in scene.objects.hoards if _is_bounded(scene, hoard)]
    piles = (each for each in scene.objects.hoards if _piles_up(scene, each))
    hoard = next((each for each in piles if each not in bounded), None)
    growth = max(growth - sum(each.bytes for each in bounded), 0)
    found = strongest_finding(scene, LEAKS, besides=tuple(each.place.holder for each in bounded))
    held = max(growth, hoard.bytes if hoard is not None and hoard.tensors >= 3 else 0)
    if not matters(scene, growth) and not (growth > 0 and found is not None and matters(scene, held)):
        return None
    if hoard is not None and hoard.bytes < growth / 4:
        hoard = None
    if hoard is None and found is None and (inputs_grew(scene) or any(replayed.fits for replayed in scene.replays)):
        return None  # a growth that nothing names, and something else that explains it
    place, who = NOWHERE, ""
    if found is not None and found.file:
        place = Place(file=found.file, line=found.line, function=found.function, holder=found.holder)
        who = f" {found.code} names what keeps it: `{found.holder}`, line {found.line}." if found.holder else ""
    if not who and hoard is not None and hoard.place.holder:
        place = hoard.place
        who = f" {_said_of(hoard)}"
    return Verdict(
        cause=Cause.LEAK,
        text=f"A leak: what stays allocated after a batch grew by {format_bytes(growth)} over {batches} batches, "
        f"{format_bytes(per_batch)} with each.{who}",
        bytes=held,
        place=place,
        finding=found,
        hoard=hoard,
        evidence={"growth_bytes": growth, "batches": batches, "bytes_per_batch": per_batch},
    )


def find_young_leak(scene: Scene) -> Verdict | None:
    """Few batches, each of which left as much more, and a variable that holds as many tensors and that much."""
    floors = floors_of(scene)
    if not FEW <= len(floors) < ENOUGH or inputs_grew(scene):
        return None
    rises = [after - before for before, after in itertools.pairwise(floors)]
    if min(rises) <= 0 or max(rises) > 2 * min(rises):
        return None
    hoard = next((each for each in scene.objects.hoards if not _is_bounded(scene, each)), None)
    if hoard is None or hoard.tensors < len(floors) or hoard.bytes < len(floors) * min(rises) / 2:
        return None
    if not matters(scene, hoard.bytes):
        return None
    return Verdict(
        cause=Cause.LEAK,
        text=f"A leak: after each of the {len(floors)} batches so far about {format_bytes(rises[-1])} more stayed "
        f"allocated. {_said_of(hoard)}",
        bytes=hoard.bytes,
        place=hoard.place,
        hoard=hoard,
        evidence={"batches": len(floors), "bytes_per_batch": rises[-1]},
    )


def find_kept_forwards(scene: Scene) -> Verdict | None:
    """Many forwards in a row whose graphs something keeps, where a batch has one: an evaluation that adds up losses."""
    usual = scene.usual_forwards
    hoard = next((hoard for hoard in scene.objects.hoards if hoard.graph), None)
    if scene.objects.phase == "backward":
        return None
    if not scene.forwards and not scene.records:
        return _carried_by_none(scene, hoard)
    if scene.forwards < (MANY_FORWARDS * usual or MANY_FIRST_FORWARDS):
        return None
    if hoard is None or hoard.bytes < scene.objects.owners.get("activations", 0) / 2 or not matters(scene, hoard.bytes):
        return None
    before = f"a training batch had {usual}" if usual else "none came so far"
    return Verdict(
        cause=Cause.LEAK,
        text=f"A leak: {scene.forwards} forwards in a row without a backward, and their autograd graphs are all kept "
        f"({before}). {_said_of(hoard, each='forward')}",
        bytes=hoard.bytes,
        place=hoard.place,
        hoard=hoard,
        evidence={"forwards": scene.forwards, "usual_forwards": usual},
    )


def _carried_by_none(scene: Scene, hoard: KeptTensors | None) -> Verdict | None:
    """Likewise in a program of bare tensors, of which neither forwards nor backwards were seen: its loop tells."""
    if hoard is None or not hoard.feeds or hoard.bytes < MOST_OF_IT * (scene.request.allocated_bytes or 0):
        return None
    if not matters(scene, hoard.bytes):
        return None
    said = _said_of(hoard, each="turn of its loop")
    return Verdict(
        cause=Cause.LEAK,
        text=f"A leak: autograd graphs pile up, and no backward came so far. {said}",
        bytes=hoard.bytes,
        place=hoard.place,
        hoard=hoard,
        evidence={"forwards": 0},
    )


def find_pile(scene: Scene) -> Verdict | None:
    """A container without graphs that holds most of what is allocated, and grew to that in this run or in this loop.

    It has grown where a batch ended with less allocated than it alone holds now; or the program stands in the loop that
    adds to it. A data set that lay there before the first batch has not, nor has what a forward holds for a moment.
    """
    request, ends = scene.request, [record.allocated_end_bytes for record in scene.records]
    allocated, free = request.allocated_bytes or 0, (request.free_bytes or 0) + (request.pieces_bytes or 0)
    floor = min((end for end in ends if end is not None), default=None)
    for hoard in scene.objects.hoards:
        held = min(hoard.bytes, scene.objects.owners.get("outputs", 0))
        if hoard.graph or hoard.tensors < FEW or held < MOST_OF_IT * allocated or free > SOON * held:
            continue
        grew = hoard.filling or (floor is not None and held - floor >= held / 2)
        if not grew or _is_bounded(scene, hoard) or not matters(scene, held):
            continue
        found = strongest_finding(scene, LEAKS)
        return Verdict(
            cause=Cause.LEAK,
            text=f"A pile: {_said_of(hoard)} That is {held / allocated:.0%} of what is allocated.",
            bytes=held,
            place=hoard.place,
            finding=found if found is not None and found.holder == hoard.place.holder else None,
            hoard=hoard,
            evidence={"share": held / allocated},
        )
    return None


def _said_of(hoard: KeptTensors, each: str = "batch") -> str:
    holder, held = hoard.place.holder, format_bytes(hoard.bytes)
    if hoard.feeds == "carried":
        return f"`{holder}` goes from each {each} into the next with the graphs of all before it ({held})."
    if hoard.feeds == "added":
        return f"`{holder}` is a total that keeps the graph of everything added to it ({held})."
    if hoard.graph:
        kind = "with their autograd graphs"
    else:
        kind = "on the device, and not detached" if hoard.attached else "detached, but on the device"
    if hoard.tensors == 1:
        return f"`{holder}` keeps {held}, {kind.replace('their', 'its')}."
    return f"`{holder}` holds {hoard.tensors} tensors ({held}), {kind}."


def _piles_up(scene: Scene, hoard: KeptTensors) -> bool:
    """Whether a hoard is of many batches: a single tensor is, if its graph holds more than a batch ever took."""
    if hoard.tensors >= 3 or hoard.feeds:
        return True
    return hoard.graph and hoard.bytes > 1.5 * largest_batch_bytes(scene)


def _is_bounded(scene: Scene, hoard: KeptTensors) -> bool:
    """Whether a hoard stops growing by itself, before it alone would fill the device."""
    if hoard.most is None or not hoard.tensors:
        return False
    return hoard.bytes / hoard.tensors * hoard.most < 0.9 * (scene.request.limit_bytes or 0)
