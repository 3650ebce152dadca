"""What a name still holds of the previous batch's outputs when the next forward begins, or the next peak comes."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from threading import get_ident
from typing import Any, final

import torch
from torch import nn

from memguard.autograd.graph import NodePrehook
from memguard.evidence.interface import ProbeContext
from memguard.evidence.naming.groups import name_key
from memguard.evidence.naming.holders import Holder, HolderSearch
from memguard.heap.containers import length_of, tensors_in
from memguard.heap.frames import read_locals, user_frames
from memguard.records.facts import NOWHERE, Place, PreviousOutputsAlive
from memguard.records.stats import MemoryStats
from memguard.thresholds import least_of_device, least_of_peak, least_of_remark
from memguard.torch_objects.hidden_hooks import without_number
from memguard.torch_objects.storages import StorageRef, main_storage, storage_key, storages_of

BESIDE = 2
"""Times that an output itself may be too small: probabilities or masks of its size may lie beside it."""

MUCH_MORE = 2
"""Times that another name must hold as much, to be told in place of the likeliest."""


def least_of_previous(watch: ProbeContext, *, remark: bool) -> int:
    """Bytes of the last batch from which on they are worth a word, or a remark."""
    of_device = least_of_device(watch.device_total_bytes)
    of_peak = least_of_remark(watch.peak_bytes) if remark else least_of_peak(watch.peak_bytes)
    return of_device if of_peak is None else min(of_device, of_peak)


@final
@dataclass(slots=True)
class PreviousLook:
    """One look at the start of a forward, which goes on to the end of the batch."""

    bytes: int
    place: Place | None
    refs: list[Any]
    """Of the outputs."""
    peak: int | None = None
    """At the end of the forward."""
    is_past_forward: bool = False
    gone: PeakAtRelease | None = None
    until_backward: bool = False
    """Whether some were still there when a backward began."""
    steady: bool = False
    """Whether one look tells: the source sets it in every turn of a loop, or only the next sequence replaces it."""
    beside: tuple[str, ...] = ()
    """Other variables of the same function that hold the outputs."""

    def forward_over(self, output: object, peak: int | None) -> None:
        """The forward is over: where its backward comes back to it, it is asked once more."""
        self.peak, self.is_past_forward = peak, True
        for tensor in tensors_in(output):
            if tensor.grad_fn is not None:
                without_number(tensor.grad_fn.register_prehook, _Asks(self))
                return

    def ask(self) -> None:
        """Notes whether any of them is there now."""
        self.until_backward = self.until_backward or any(not ref.expired() for ref in self.refs)

    def fact(self, watch: ProbeContext) -> PreviousOutputsAlive:
        """What is to be told at the batch's end."""
        highest = watch.peak_bytes
        gone = self.gone.peak if self.gone is not None else None
        return PreviousOutputsAlive(
            **watch.now,
            place=self.place or NOWHERE,
            bytes=self.bytes,
            peak_in_forward=None if highest is None or self.peak is None else self.peak >= highest,
            until_backward=self.until_backward,
            until_peak=highest is not None and gone is not None and gone >= highest,
            peak_bytes=highest,
            steady=self.steady,
            beside=self.beside,
        )


@final
class _Asks(NodePrehook):
    """The prehook of an output's node; knows numbers and weak references alone."""

    __slots__ = ("_look",)

    def __init__(self, look: PreviousLook) -> None:
        self._look = look

    def __call__(self, grads: object) -> None:
        self._look.ask()


@final
class TensorsBesideOutputs:
    """What lies under the names that hold outputs of the last batch, and is of that batch too.

    What was there at the look before is not: it is there for longer.
    """

    def __init__(self) -> None:
        self._before: dict[int, Any] = {}

    def look(self, watch: ProbeContext, outputs: dict[int, int]) -> tuple[tuple[Holder, ...], int, PeakAtRelease]:
        """Who holds the outputs, bytes of all of it, and what will see the outputs go."""
        survey = HolderSearch(models=watch.models, extra=watch.roots())
        found = survey.judged(lambda tensor: outputs.get((storage_key(tensor) or (0, 0))[0]))
        names = {name_key(link) for link, _ in found}
        devices = {link.value.device for link, _ in found}
        beside = [link.value for link in survey.snapshot.tensors if names and name_key(link) in names]
        held, seen = dict(outputs), dict[int, Any]()
        for tensor in beside:
            key = None if issubclass(type(tensor), nn.Parameter) else storage_key(tensor)
            if key is None or key[0] in outputs or tensor.device not in devices:
                continue
            before = self._before.get(key[0])
            seen[key[0]] = StorageRef(main_storage(tensor))
            if before is None or before.expired():
                held[key[0]] = key[1]
        self._before = seen
        holders = _heaviest_first(survey.holders(found, stage=watch.stage))
        return holders, sum(held.values()), PeakAtRelease((link.value for link, _ in found), watch.read)


def variables_beside(place: Place, storages: Collection[int]) -> tuple[str, ...]:
    """Other variables of the function at a place that hold one of some storages, each alone or in a small container."""
    function = (place.function or "").rpartition(".")[2]
    for frame in user_frames():
        if (frame.f_code.co_filename, frame.f_code.co_name) != (place.file, function):
            continue
        variables = read_locals(frame)
        if variables.pop(place.holder or "", None) is not None:
            small = {name: value for name, value in variables.items() if length_of(value) <= MAX_TENSORS}
            held = {name: storages_of(tensors_in(value, 4)) for name, value in small.items()}
            return tuple(name for name, own in held.items() if not own.keys().isdisjoint(storages))
    return ()


def _heaviest_first(holders: tuple[Holder, ...]) -> tuple[Holder, ...]:
    """Of several names the one that holds most by far, else the likeliest: ``image, weights = model(x)``."""
    most = max((holder.bytes for holder in holders), default=0)
    heavy = [holder for holder in holders if MUCH_MORE * holder.bytes >= most]
    return (*heavy, *(holder for holder in holders if holder not in heavy))


MAX_TENSORS = 16


@final
class PeakAtRelease:
    """Reads the device's peak as each of some tensors goes, for as long as half of their bytes are there.

    Holds the tensors weakly; a view of one that is looked for counts as itself.

    Attributes:
        peak: The last reading, in bytes; None before the first, and without an allocator's numbers.
    """

    def __init__(self, tensors: Iterable[torch.Tensor], read: Callable[[], MemoryStats]) -> None:
        self.peak: int | None = None
        self._read, self._thread = read, get_ident()
        different = {id(tensor): tensor for tensor in tensors if not issubclass(type(tensor), torch.nn.Parameter)}
        some = list(different.values())[:MAX_TENSORS]
        self._all = self._alive = sum(tensor.nbytes for tensor in some)
        self._refs: dict[Any, int] = {weakref.ref(tensor, self._gone): tensor.nbytes for tensor in some}

    def stop(self) -> None:
        """What goes from now on is not examined."""
        self._refs.clear()

    def _gone(self, ref: weakref.ref[torch.Tensor]) -> None:
        try:
            nbytes = self._refs.pop(ref, None)
            if nbytes is not None and 2 * self._alive >= self._all and get_ident() == self._thread:
                self.peak = self._read().allocated_peak_bytes
            self._alive -= nbytes or 0
        except Exception:
            self._refs.clear()  # it runs in the middle of the user's step, where nothing can be reported
