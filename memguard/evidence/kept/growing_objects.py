"""Facts about single objects that grow, and about containers that keep what workers sent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from memguard.evidence.graphs.module_state import is_fed_back, is_filled_by_model, is_own_memory
from memguard.evidence.interface import ProbeContext
from memguard.evidence.naming.holders import Holder, HolderSearch
from memguard.heap.containers import length_of, newest_of
from memguard.heap.frames import user_frames
from memguard.heap.history import ObjectGrowth
from memguard.heap.host_sizes import size_of
from memguard.records.facts import Fact, KeptOnHost, KeptOutputs, Place, RetainedGraphs
from memguard.records.facts.storages import OF_BATCHES
from memguard.source.bounds import bounds_of, is_made_anew
from memguard.source.expressions import symbol_of
from memguard.source.fate import Fate, fate_of
from memguard.source.origins import is_on_host
from memguard.source.stores import is_new_item, keeps_a_slice


def swollen_facts(watch: ProbeContext, swollen: Mapping[int, ObjectGrowth]) -> Iterator[Fact]:
    """Single objects that a statement makes larger with every batch, or hangs on the graph of the last.

    Args:
        watch: The run.
        swollen: What grew, by the ids of tensors, arrays and texts that are alive.
    """
    survey = HolderSearch(models=watch.models, extra=watch.roots())
    met = [(link, swollen[id(link.value)]) for link in survey.tensors if id(link.value) in swollen]
    for graph in (False, True):
        for holder, links in survey.by_holder(
            [(link, 0) for link, one in met if bool(one.nodes) is graph], graph=graph
        ):
            found = max((swollen[id(link.value)] for link in links), key=lambda found: found.bytes + found.nodes)
            if _is_new(watch, holder) and (fact := _of_tensor(watch, holder.place, found)) is not None:
                yield fact
    blocks = [(link, 0) for link in survey.links if id(link.value) in swollen]
    for holder, links in survey.by_holder(blocks, plain=True):
        if _is_new(watch, holder):
            yield _of_block(
                watch, holder.place, max((swollen[id(link.value)] for link in links), key=lambda one: one.bytes)
            )


def handed_facts(watch: ProbeContext, containers: frozenset[int]) -> Iterator[Fact]:
    """Containers of what DataLoader workers handed over, though nothing is added to them any more.

    Args:
        watch: The run.
        containers: Their ids.
    """
    survey = HolderSearch(models=watch.models, extra=watch.roots())
    for link in [link for link in survey.links if id(link.value) in containers]:
        place, length = survey.cause(link), length_of(link.value)
        where = (place.file, place.line)
        if place.file is None or where in watch.told:
            continue
        watch.told.add(where)
        yield KeptOnHost(
            **watch.now,
            place=place,
            elements=length,
            bytes=size_of(newest_of(link.value)) * length,
            bytes_per_batch=0.0,
            from_workers=True,
        )


def _is_new(watch: ProbeContext, holder: Holder) -> bool:
    """Whether a statement makes something larger, for good, and is still to be told."""
    place = holder.place
    where = (place.file, place.line)
    if not holder.grows or where in watch.told or keeps_a_slice(place.source):
        return False
    if is_made_anew(place.file, place.line, place.holder):
        return False
    if is_new_item(place.source, symbol_of(place.holder)[0]):  # a larger element beside the last one, which stays
        return False
    watch.told.add(where)
    return True


def _of_tensor(watch: ProbeContext, place: Place, found: ObjectGrowth) -> Fact | None:
    first = max(watch.batch - found.since, 0)
    if found.nodes and watch.trains_nothing and watch.carried:
        return None  # what hangs on a state that was told as carried: it gets longer with it
    carried = is_fed_back(place, user_frames()) or is_own_memory(place, watch.models, user_frames())
    if found.nodes:
        if watch.stage.evaluates and (
            (watch.evaluated and (carried or (place.function or "").endswith(".forward")))
            or (place.file, place.function) in watch.rolled_out
            or fate_of(place.file or "", place.line or 0) is Fate.BACKWARD
        ):
            return None  # an evaluation that lacks a no_grad, told as that; or one that trains
        return RetainedGraphs(
            **watch.now,
            place=place,
            graphs=found.batches,
            first_batch=first,
            last_batch=watch.batch,
            optimizer_steps=0,
            carried=carried,
            deepened=True,
        )
    bounded = bool(bounds_of(place.file, place.line, place.holder, evaluates=watch.stage.evaluates))
    if (
        is_on_host(place)
        or (carried and bounded)
        or (watch.stage.evaluates and is_filled_by_model(place, user_frames()))
    ):
        return None  # a state that grows for as long as one sequence: the keys and values of its attention
    return KeptOutputs(
        **watch.now,
        place=place,
        tensors=found.batches,
        first_batch=first,
        bytes=found.bytes,
        bytes_per_batch=found.bytes / found.batches,
        bounded=bounded,
        what=OF_BATCHES,
    )


def _of_block(watch: ProbeContext, place: Place, found: ObjectGrowth) -> Fact:
    """An array or a text that is joined to what every batch brings."""
    return KeptOnHost(
        **watch.now,
        place=place,
        elements=found.batches,
        bytes=found.bytes,
        bytes_per_batch=found.bytes / found.batches,
        first_batch=max(watch.batch - found.since, 0),
        kind="array",
        bounded=bool(bounds_of(place.file, place.line, place.holder, evaluates=watch.stage.evaluates)),
    )
