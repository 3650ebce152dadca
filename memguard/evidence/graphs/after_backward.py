"""What a backward leaves behind: saved tensors still held by the graph, gradients that carry a graph."""

from __future__ import annotations

import linecache
import re
from collections import Counter
from collections.abc import Collection
from dataclasses import replace
from typing import Any, NamedTuple, final

import torch

from memguard.autograd.graph import iter_nodes, saved_storages, saved_tensors
from memguard.evidence.graph_tracker import ForwardGraph
from memguard.evidence.graphs.graph_contents import reach_of
from memguard.evidence.interface import Probe, ProbeContext
from memguard.records.facts import GradientsWithGraph, Place, SavedAfterBackward
from memguard.source.remaking import gradient_leaf
from memguard.source.sites import calls_backward
from memguard.thresholds import LEAST, least_of_remark
from memguard.torch_objects.storages import owned_storages, storage_key

LOOKS = 3
"""How often a graph whose saved tensors outlived the backward is sized, and one of the batch that goes on."""
PATIENCE = 8
"""Batches after which there will be no step that tells whether a graph was still wanted."""


class _Kept(NamedTuple):
    """A graph that a backward left behind, as the next forward of its model began."""

    last: ForwardGraph
    uses: int
    place: Place
    saved: dict[int, int]
    same_batch: bool
    """Whether that forward came before any step: then one tells whether a later backward wanted the graph."""
    beside: list[tuple[ForwardGraph, int, dict[int, int] | None]]
    """The other forwards through which the same backward ran, how often one had, what the graph of each saved."""

    @property
    def needed(self) -> dict[int, int] | None:
        """What those of them saved through which a backward ran again; None where that is unknown."""
        needed: dict[int, int] = {}
        for mark, uses, saved in self.beside:
            if mark.uses > uses:
                if saved is None:
                    return None
                needed.update(saved)
        return needed


@final
class SavedTensors:
    """Follows what a backward with ``retain_graph=True`` left behind: it stands beside the graph that is built next.

    Where the backward of that next batch runs through it again, a carried state leads back into it, and is the cause.
    """

    def __init__(self, probe: Probe) -> None:
        self._watch, self._report, self._holders = probe.watch, probe.report, probe.holders
        self._told = self._within = 0
        self._names: dict[Place, str | None] = {}
        """Which variable held the graph of a backward; looked for once, when it is seen for the second time."""
        self.open: list[_Kept] = []
        """What `conclude` has to look at."""
        self.carried_by: Place | None = None
        """The backward whose graph the next one ran through again."""
        self._passed: list[SavedAfterBackward] = []
        """What later backwards before the same step ran through again: told only where a state leads back for good."""

    def look(self, last: ForwardGraph) -> None:
        """Sizes the graph of a model's last forward, where a backward kept it, as the next forward begins."""
        place, last.kept = last.kept, None
        marks = (*list(self._watch.ledger.live.values()), *self._watch.ledger.died)
        others = (m for m in marks if m.batch == last.batch and m.module != last.module and m.used and m.kept is None)
        # Autograd counts its backwards.
        if not all(isinstance(m.task, int) and isinstance(last.task, int) and m.task < last.task for m in others):
            return  # one of several losses on a shared graph, which the last of them freed
        if self._told >= LOOKS or place is None or calls_backward(last.created):
            return  # with create_graph it keeps its graph by itself: the gradients are told as that (MG104)
        self._told += 1
        saved = self._sized(last, place, named=self._told > 1)
        self.open.append(_Kept(last, last.uses, place, saved, False, self._beside(last)))

    def look_within(self, last: ForwardGraph) -> None:
        """Sizes it likewise where the batch goes on, before any step: there a later backward may still want it."""
        place = last.kept
        if self._within >= LOOKS or place is None or calls_backward(last.created):
            return
        if any(kept.last is last for kept in self.open):
            return
        self._within += 1
        saved = self._sized(last, place, named=self._within > 1)
        if sum(saved.values()) >= (least_of_remark(self._watch.peak_bytes) or LEAST):
            self.open.append(_Kept(last, last.uses, place, saved, True, self._beside(last)))

    def _sized(self, last: ForwardGraph, place: Place, *, named: bool) -> dict[int, int]:
        """What a forward's graph saved, without the model's own; finds at times the variable that holds it."""
        saved = _saved_of(last) or {}
        if named and place not in self._names:
            self._names[place] = self._name(last, saved, place)
        for key in owned_storages(self._watch.models) if saved else ():
            saved.pop(key, None)
        return saved

    def _beside(self, last: ForwardGraph) -> list[tuple[ForwardGraph, int, dict[int, int] | None]]:
        """The forwards through which the same backward ran; by now one may have run again, as it was kept for."""
        if last.task is None:
            return []
        marks = [m for m in (*list(self._watch.ledger.live.values()), *self._watch.ledger.died) if m is not last]
        again = [m for m in marks if m.before == last.task and m.kept is None]
        return [
            *((m, m.uses, _saved_of(m)) for m in marks if m.task == last.task),
            *((m, m.uses - 1, _saved_of(m) or {}) for m in again),
        ]

    def _name(self, last: ForwardGraph, saved: dict[int, int], place: Place) -> str | None:
        """The variable that holds a forward's graph: of several the one that the backward began at, or is nearest.

        What the graph of each of them saved is added: a loss of several forwards keeps what all of them saved.
        """
        reach = reach_of([last])

        def judge(tensor: torch.Tensor) -> int | None:
            nbytes = reach(tensor)
            if nbytes is not None and tensor.grad_fn is not None:
                saved.update(_shown_by(tensor.grad_fn))
            return nbytes

        def is_upstream(tensor: torch.Tensor, others: Collection[torch.Tensor]) -> bool:
            return any(reach.passes(other, (tensor,)) for other in others)

        found = self._holders(judge, graph=True, passes=is_upstream, stage=last.stage, collector=False)
        names = [holder.place.holder for holder in found if holder.kind != "unnamed"]
        text = linecache.getline(place.file or "", place.line or 0)
        called = (name for name in names if name and re.search(rf"\b{re.escape(name)}\s*\.\s*backward\b", text))
        return next(called, names[0] if names else None)

    def conclude(self) -> None:
        """Tells what was seen, now that the next backward has been."""
        kept_open, self.open = self.open, []
        for kept in kept_open:
            last, saved = kept.last, kept.saved
            carried = last.uses > kept.uses
            if kept.same_batch and carried:  # it was kept for that
                self._passed.append(self._fact(kept, saved, carried=True))
                continue
            if kept.same_batch and self._watch.optimizer_steps == last.steps:
                if self._watch.batch - last.batch < PATIENCE:
                    self.open.append(kept)
                continue
            # It may be kept for another part of it: a generator's, below the discriminator's. The rest is in vain.
            part = not carried and any(mark.uses > then for mark, then, _ in kept.beside)
            if part:
                needed = kept.needed
                saved = {} if needed is None else {key: size for key, size in saved.items() if key not in needed}
                if sum(saved.values()) < (least_of_remark(self._watch.peak_bytes) or LEAST):
                    continue
            if carried:
                self.carried_by = kept.place
            self._report(self._fact(kept, saved, carried=carried, part=part))

    def tell_passed(self, marks: Collection[ForwardGraph]) -> None:
        """Tells what was kept for later backwards of the same step, now that a state is known to be their cause."""
        passed, self._passed = self._passed, []
        places = {mark.kept.where for mark in marks if mark.kept is not None}
        for fact in passed:
            if fact.place.where in places:
                self._report(replace(fact, batch=self._watch.batch, same_batch=False))

    def _fact(self, kept: _Kept, saved: dict[int, int], *, carried: bool, part: bool = False) -> SavedAfterBackward:
        return SavedAfterBackward(
            batch=self._watch.batch,
            stage=kept.last.stage,
            place=replace(kept.place, holder=self._names.get(kept.place)),
            bytes=sum(saved.values()),
            tensors=len(saved),
            carried=carried,
            part=part,
            same_batch=kept.same_batch,
        )


def _saved_of(mark: ForwardGraph) -> dict[int, int] | None:
    """What the graph of a forward's output saved; None where the output is gone."""
    output = mark.output() if mark.output is not None else None
    return saved_storages(output.grad_fn) if output is not None and output.grad_fn is not None else None


def _shown_by(node: Any) -> dict[int, int]:
    """The storages that a graph saved, with what its tensors show of them: a batch may be a part of all data."""
    found: dict[int, int] = {}
    for current in iter_nodes((node,)):
        for tensor in saved_tensors(current):
            key = storage_key(tensor)
            if key is not None:
                found[key[0]] = min(found.get(key[0], 0) + tensor.numel() * tensor.element_size(), key[1])
    return found


def tied_marks(marks: Collection[ForwardGraph]) -> list[ForwardGraph]:
    """Those of some graphs that ``backward(create_graph=True)`` left behind, if one such call did so in most batches.

    What it was told not to run through, below its ``inputs``, hangs on them. A leaf (a weight, an input that requires
    grad) and its gradient hold each other there, in C++, where the garbage collector does not look.
    """
    place = _tied_by(marks)
    tied = [mark for mark in marks if place in mark.creators]
    return tied if 2 * len(_batches(tied)) > len(_batches(marks)) else []


def _batches(marks: Collection[ForwardGraph]) -> set[int]:
    return {mark.batch for mark in marks}


def tied_gradients(tied: Collection[ForwardGraph], watch: ProbeContext) -> GradientsWithGraph | None:
    """What is to be told of graphs that nothing but such gradients hold; None where there are none."""
    place = _tied_by(tied)
    if place is None:
        return None
    return GradientsWithGraph(
        **watch.now,
        place=replace(place, holder=gradient_leaf(place)),
        parameters=0,
        bytes=0,
        graphs=len(_batches(tied)),
    )


def _tied_by(marks: Collection[ForwardGraph]) -> Place | None:
    """The ``backward(create_graph=True)`` that ran through most graphs, whatever ``autograd.grad`` did after it."""
    calls = Counter(place for mark in marks for place in mark.creators)
    return next((place for place, _ in calls.most_common() if calls_backward(place)), None)
