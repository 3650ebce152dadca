"""The storage ledger: outputs that outlive their batch, without a graph, and views that pin more than they show."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, final

import torch
from torch import nn

from memguard.evidence.interface import Probe
from memguard.evidence.kept.retained import kept_around
from memguard.evidence.kept.views import RATIO
from memguard.evidence.naming.names import capacity_of, outgrew
from memguard.evidence.peaks.previous_batch import (
    BESIDE,
    PreviousLook,
    TensorsBesideOutputs,
    least_of_previous,
    variables_beside,
)
from memguard.evidence.sizes import large_storages
from memguard.heap.children import ChildReader
from memguard.heap.containers import tensors_in
from memguard.heap.frames import user_frames
from memguard.heap.roots import roots_of
from memguard.heap.snapshot import HeapSnapshot
from memguard.records.facts import KeptOutputs, Place, ViewsPinStorage
from memguard.records.facts.storages import OF_BATCHES
from memguard.records.stats import Stage
from memguard.source.bounds import Bound, bounds_of, is_cache, is_learned_from
from memguard.source.origins import is_on_host
from memguard.source.reads import is_left_by_each_turn
from memguard.source.sites import remedy_at
from memguard.source.stores import carries_itself, is_in_loop
from memguard.thresholds import LEAST_REMARK, least_of_device
from memguard.torch_objects.module_parts import parts_of
from memguard.torch_objects.storages import StorageRef, owned_storages, storage_key, storages_of

MIN_BYTES = 1024
MAX_OUTPUTS = 2048
MIN_BATCHES = 8
AGAIN = 4
STEP = 0
"""In the place of a model: what the user's step returned, which counts for the next batch alone."""
PREVIOUS_LOOKS, PREVIOUS_TRIES = 2, 8
"""Looks that came to an end, and how many are begun for them: a batch may be left out between."""
_PREDICTIONS = (
    "trainer.predict() keeps what predict_step returns: return x.cpu(), or pass return_predictions=False and "
    "write them with a BasePredictionWriter."
)
REMARKS = 3
"""Looks at what is worth a remark alone: each is a walk over everything in reach."""
CALM = 24
"""Training batches that left nothing behind, after which one in four is followed, and all where looks are asked for."""


@final
class _Output:
    """One output's storage, held weakly."""

    __slots__ = ("batch", "bytes", "key", "module", "ref", "stage")

    def __init__(self, storage: torch.UntypedStorage, nbytes: int, batch: int, stage: Stage, module: int) -> None:
        self.ref: Any = StorageRef(storage)
        self.key, self.bytes = storage._cdata, nbytes
        self.batch, self.stage, self.module = batch, stage, module


@final
class OutputsProbe(Probe):
    """Follows the storages of the models' outputs, and counts at times what user code holds."""

    def _prepare(self) -> None:
        self._new: list[_Output] = []
        """Of this batch and the one before."""
        self._new_bytes = 0
        self._alive: list[_Output] = []
        """Those of earlier batches that were alive at the last batch's end."""
        self._again: dict[Stage, int] = {}
        self._previous: PreviousLook | None = None
        self._beside = TensorsBesideOutputs()
        self._previous_looks = self._previous_tries = 0
        self._remarks = REMARKS
        """Looks that may turn out to be at what is little; after those it takes much."""
        self._times: float = BESIDE
        """Times that an output itself may be too small."""
        self._last_kept = 0
        """The last batch that left an output behind."""

    def on_forward_start(self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Looks whether the last batch's outputs are still there."""
        if not self._new_bytes or self._previous is not None:
            return
        watch, seen = self.watch, self._times * self._new_bytes
        if seen < min(least_of_device(watch.device_total_bytes), LEAST_REMARK):
            return
        least = least_of_previous(watch, remark=self._remarks > 0)
        if seen < least:
            return
        makers, before = (id(module), STEP), watch.batch - 1
        last = [o for o in self._new if o.module in makers and o.batch == before and not o.ref.expired()]
        if last:  # a state that this forward is given is wanted
            given = storages_of(tensors_in((args, kwargs), 4))
            last = [output for output in last if output.key not in given]
        outputs = {output.key: output.bytes for output in last}
        size, much = sum(outputs.values()), least_of_previous(watch, remark=False)
        if self._times * size < least:
            return
        self._previous_tries += self._times * size >= much
        if self._previous_tries == PREVIOUS_TRIES:
            self.unsubscribe("on_forward_start")
        holders, held, gone = self._beside.look(watch, outputs)
        self._remarks -= held < much
        grows = bool(holders) and holders[0].grows
        steady = bool(holders) and self._is_steady(holders[0].place, grows=grows)
        if held >= least and (steady or not grows):  # what becomes more is not of the last batch alone
            self._times = max(self._times, held / size)  # what it adds to the peak must not hide it the next time
            place = holders[0].place if holders else None
            beside = variables_beside(place, outputs) if place is not None else ()
            refs = [output.ref for output in last]
            self._previous = PreviousLook(held, place, refs, gone=gone, steady=steady, beside=beside)

    def _is_steady(self, place: Place, *, grows: bool) -> bool:
        """Whether one look tells that it is so in each batch."""
        if grows:
            return self._is_left_over(place)
        return place.file is not None and is_left_by_each_turn(place.file, place.line or 0, place.holder or "")

    def _is_left_over(self, place: Place) -> bool:
        """Whether what grew with one sequence, as keys and values do in a generation, is there in a training forward.

        The forward is not given it. A module may read its own state, wherever that was written.
        """
        owner, _, name = (place.holder or "").rpartition(".")
        if not torch.is_grad_enabled() or not carries_itself(place.source, name):
            return False
        return all(type(part).__name__ != owner for model in self.watch.models for part in parts_of(model))

    def on_forward_end(self, module: nn.Module, args: tuple[Any, ...], output: object) -> None:
        """Notes the storages of an output."""
        watch = self.watch
        if self._previous is not None and not self._previous.is_past_forward:
            self._previous.forward_over(output, watch.read().allocated_peak_bytes)
        if output is None or len(self._alive) >= MAX_OUTPUTS or len(self._new) >= MAX_OUTPUTS:
            return
        batch = watch.batch
        if batch & 3 and batch > watch.dense_until and batch > self._last_kept + CALM and watch.stage is Stage.TRAIN:
            return
        self._note(output, id(module))

    def on_returned(self, output: object) -> None:
        """Notes what a step returned: it may have been made behind its models."""
        if self._previous_looks < PREVIOUS_LOOKS and len(self._new) < MAX_OUTPUTS:
            self._note(output, STEP)

    def _note(self, output: object, module: int) -> None:
        watch = self.watch
        for storage, nbytes in large_storages(output, MIN_BYTES):
            self._new.append(_Output(storage, nbytes, watch.batch, watch.stage, module))
            self._new_bytes += nbytes

    def on_batch_end(self) -> None:
        """Concludes."""
        previous, self._previous = self._previous, None
        if previous is not None:
            self._previous_looks += previous.bytes >= least_of_previous(self.watch, remark=False)
            if previous.gone is not None:
                previous.gone.stop()
            if self._previous_looks == PREVIOUS_LOOKS:
                self.unsubscribe("on_forward_start")
            self.report(previous.fact(self.watch))
        if self._new:
            self._age()
        if not self._alive:
            return
        self._alive = [output for output in self._alive if not output.ref.expired()]
        stage = self.watch.stage
        old = [output for output in self._alive if output.stage is stage]
        batches = {output.batch for output in old}
        if len(batches) >= self._again.get(stage, MIN_BATCHES):
            self._again[stage] = AGAIN * len(batches)
            self._name(old, batches)

    def on_stage_end(self, stage: Stage) -> None:
        """A pass over the data ends: counting begins anew, for what grows within one."""
        if stage is not Stage.TRAIN:
            self._again.pop(stage, None)

    # Outputs kept

    def _age(self) -> None:
        """Sorts out what a batch that is over for long has left: most of it is gone, and asked for only once."""
        before = self.watch.batch - 1
        aged = [output for output in self._new if output.batch < before]
        if aged:
            self._new = [output for output in self._new if output.batch >= before]
            self._new_bytes = sum(output.bytes for output in self._new)
            kept = [output for output in aged if output.module != STEP and not output.ref.expired()]
            if kept:
                self._alive += kept
                self._last_kept = self.watch.batch

    def _name(self, old: list[_Output], batches: set[int]) -> None:
        watch = self.watch
        kept = _Kept({output.key for output in old})
        survey = watch.search()
        found = survey.judged(kept) or survey.judged(kept, unsampled=True)
        holders = survey.holders(found, stage=watch.stage) or self.holders(
            kept, graph=False, collector=False, stage=watch.stage
        )
        if not holders:
            return
        holder = max(holders, key=lambda holder: (holder.grows, holder.bytes, holder.tensors))
        if holder.length < MIN_BATCHES and not holder.grows:
            return
        # Of an answer whose parts go to several lists, each keeps its own; long lists are met in samples.
        of_all = min(holder.bytes / kept.pinned, 1.0) if kept.pinned else 1.0
        held = round(of_all * sum({output.key: output.bytes for output in old}.values()))
        # What lies beside the outputs in the same elements is kept as well: labels, masks, copies.
        owned = owned_storages(watch.models)
        whole = kept_around(survey.snapshot, holder.container)
        total = max(whole.bytes(owned) if whole is not None else 0, held)
        rate = max(held / len(batches), total / max(len(batches), holder.length))
        place = holder.place
        bounds = bounds_of(place.file, place.line, place.holder, evaluates=watch.stage.evaluates)
        if outgrew(holder.length, capacity_of(None, place.file, place.holder)):
            bounds &= ~Bound.MEASURED
        again = _Kept({output.key for output in old})
        bounded = bool(bounds) or not outlives_its_turn(
            lambda tensor: again(tensor) is not None, models=watch.models, extra=watch.roots()
        )
        if is_on_host(place):
            return
        if kept.pinned > RATIO * kept.used:
            share = kept.used / kept.pinned
            watch.pinned.append(frozenset(output.key for output in old))
            self.report(
                ViewsPinStorage(
                    **watch.now,
                    place=place,
                    views=len(batches),
                    used_bytes=round(held * share),
                    pinned_bytes=held,
                    grows=not bounded,
                )
            )
            return
        fact = KeptOutputs(
            **watch.now,
            place=place,
            tensors=len(batches),
            first_batch=min(batches),
            bytes=total,
            bytes_per_batch=rate,
            bounded=bounded,
            learned_from=is_learned_from(place),
            cached=is_cache(place.file, place.line, place.holder),
            what=OF_BATCHES,
            remedy=_PREDICTIONS if (place.holder or "").endswith("._trainer") else remedy_at(place),
        )
        self.report(fact)


@final
class _Kept:
    """Recognises tensors without a graph by their storage, and adds up what they show and what they pin."""

    def __init__(self, keys: set[int]) -> None:
        self._keys = keys
        self._views: dict[int, tuple[int, int]] = {}

    def __call__(self, tensor: torch.Tensor) -> int | None:
        if tensor.grad_fn is not None:
            return None
        key = storage_key(tensor)
        if key is None or key[0] not in self._keys:
            return None
        used = tensor.numel() * tensor.element_size()
        self._views[key[0]] = (self._views.get(key[0], (0, 0))[0] + used, key[1])
        return key[1]

    @property
    def used(self) -> int:
        """Bytes that the tensors show, each storage's at most its own size."""
        return sum(min(used, size) for used, size in self._views.values())

    @property
    def pinned(self) -> int:
        """Bytes of the storages."""
        return sum(size for _, size in self._views.values())


def outlives_its_turn(
    is_meant: Callable[[torch.Tensor], bool], *, models: Iterable[object] = (), extra: Iterable[tuple[str, object]] = ()
) -> bool:
    """Whether anything that lasts leads to some tensors: a global, a model, a variable outside of all loops.

    A search tree or an episode is reached from the function alone that made it, and that is called once a turn.

    Returns:
        True also where no function is called in a loop, or too much is in reach to tell.
    """
    frames = list(user_frames(sys._getframe(1)))
    lasting = [one for index, one in enumerate(frames) if not any(map(is_in_loop, frames[index + 1 :]))]
    if len(lasting) == len(frames):
        return True
    roots = roots_of(lasting, models, extra)
    with HeapSnapshot(roots, reader=ChildReader(frames)) as snapshot:
        return not snapshot.complete or any(is_meant(link.value) for link in snapshot.tensors)
