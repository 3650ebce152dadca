"""Small views that keep large storages alive, by the container that holds them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import final

import torch

from memguard.evidence.interface import Probe
from memguard.evidence.naming.holders import HolderSearch
from memguard.evidence.owners import state_of
from memguard.heap.attributes import is_user_class
from memguard.heap.snapshot import tensors_of_all
from memguard.heap.walk import Link
from memguard.records.facts import Line, Place, ViewsPinStorage
from memguard.torch_objects.storages import storage_key, storages_of, users_of

MIN_STORAGE_BYTES = 1 << 20
RATIO = 8
"""A storage is pinned if all views of it together, times this, are still smaller."""


@final
@dataclass(frozen=True, slots=True)
class PinnedStorage:
    """Views under one name, and what they pin."""

    place: Place
    views: int
    used_bytes: int
    """Of the views themselves."""
    pinned_bytes: int
    """Of the storages they keep alive."""
    storages: frozenset[int]
    """Keys of these storages; a finding needs them seen in two scans."""
    met_bytes: int = 0
    """Of those that were met, each once: of a long container only some elements are looked at."""
    held_bytes: int | None = None
    """Of all storages that the container has, where it was read whole."""


def find_pins(
    survey: HolderSearch, *, ignore: Collection[int] = (), min_storage_bytes: int = MIN_STORAGE_BYTES
) -> tuple[PinnedStorage, ...]:
    """Who holds views that use less than an eighth of the storages they keep, the heaviest first."""

    def key_of(tensor: torch.Tensor) -> tuple[int, int] | None:
        key = storage_key(tensor)
        if key is None or key[0] in ignore or key[1] < min_storage_bytes:
            return None
        is_weight = any(issubclass(type(each), torch.nn.Parameter) for each in (tensor, tensor._base))
        return None if is_weight else key

    links: dict[int, list[Link]] = {}
    sizes: dict[int, int] = {}
    for link in survey.snapshot.tensors:
        key = key_of(link.value)
        if key is not None:
            links.setdefault(key[0], []).append(link)
            sizes[key[0]] = key[1]
    views = {storage: [link.value for link in leading] for storage, leading in links.items()}
    used = {storage: _shown(tensors) for storage, tensors in views.items()}
    pinned = [storage for storage, size in sizes.items() if used[storage] * RATIO < size]
    found = []
    for holder, leaves in survey.by_holder([(link, 0) for storage in pinned for link in links[storage]]):
        # The walk took a sample of a long container: here all elements count, where they can be read.
        whole = tensors_of_all(leaves) if holder.length > len(leaves) else None
        tensors = [link.value for link in leaves] if whole is None else whole
        scale = max(holder.length / len(tensors), 1) if whole is None else 1
        kept: dict[int, list[torch.Tensor]] = {}
        for tensor in tensors:
            if (key := key_of(tensor)) is not None:
                kept.setdefault(key[0], []).append(tensor)
                sizes[key[0]] = key[1]
        count = shown = total = 0
        for storage, mine in list(kept.items()):
            everyone = [*mine, *views.get(storage, ())]
            if _has_others(everyone, scale) or (own := _shown(everyone)) * RATIO >= sizes[storage]:
                del kept[storage]
            else:
                count, shown, total = count + len(mine), shown + own, total + sizes[storage]
        if kept:
            held = None if whole is None else sum(storages_of(whole).values())
            numbers = (int(count * scale), int(shown * scale), int(total * scale))
            found.append(PinnedStorage(holder.place, *numbers, frozenset(kept), total, held))
    return tuple(sorted(found, key=lambda pin: -pin.pinned_bytes))


def _shown(views: Iterable[torch.Tensor]) -> int:
    """Bytes of a storage that some views show, as far as they are different ones."""
    distinct = {(view.storage_offset(), tuple(view.shape)): _bytes(view) for view in views}
    return sum(distinct.values())


def _has_others(met: Sequence[torch.Tensor], scale: float) -> bool:
    """Whether a storage has more views than were met, and than those that were met stand for: others have them."""
    bases = [base for tensor in met if (base := tensor._base) is not None]
    users = users_of(met[0])
    return users is not None and users > scale * len({id(tensor) for tensor in met}) + len({id(one) for one in bases})


def used_state(optimizer: torch.optim.Optimizer) -> dict[int, int]:
    """Storages of an optimizer's state that pin nothing: key to bytes.

    A flat buffer is all there in its views, of which a walk meets a few; so they are added up over the whole state.
    What an optimizer of a library keeps is not for the user to change.
    """
    tensors = list(state_of(optimizer))
    storages = storages_of(tensors)
    if not is_user_class(type(optimizer)):
        return storages
    views: dict[int, dict[tuple[object, ...], int]] = {}
    for tensor in tensors:
        key = storage_key(tensor)
        if key is not None:
            views.setdefault(key[0], {})[tensor.storage_offset(), tuple(tensor.shape)] = _bytes(tensor)
    return {key: size for key, size in storages.items() if sum(views[key].values()) * RATIO >= size}


def _bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


MIN_TOLD_AGAIN = 4
"""Storages that a list which has got longer has in common with what was told of it."""
LARGER = 2
"""Times what was told of that views must pin to be told of once more, where the floor was seen to rise since."""


@final
class ReportedViews:
    """Reports pinned storages, and remembers of which lines."""

    def __init__(self, probe: Probe, reported: set[Line]) -> None:
        self._watch, self._report, self._reported = probe.watch, probe.report, reported
        self._told: dict[Line, ViewsPinStorage] = {}

    def tell(self, pins: tuple[PinnedStorage, ...], known: frozenset[int]) -> None:
        """Of views that pin what was confirmed."""
        watch = self._watch
        for pin in pins:
            told = self._told.get(pin.place.where)
            if told and told.since != watch.rises_since and pin.pinned_bytes >= LARGER * told.pinned_bytes:
                self.report_one(pin, grows=told.grows)
            if pin.place.where in self._reported or not known & pin.storages:
                continue
            if any(is_told(storages, pin.storages) for storages in watch.pinned):
                continue  # where they were collected: a list that is handed on, or has got longer
            self._reported.add(pin.place.where)
            self.report_one(pin, grows=False)

    def report_one(self, pin: PinnedStorage, *, grows: bool) -> None:
        """Of what views of one holder pin."""
        self._watch.pinned.append(pin.storages)
        self._told[pin.place.where] = fact = ViewsPinStorage(
            **self._watch.now,
            place=pin.place,
            views=pin.views,
            used_bytes=pin.used_bytes,
            pinned_bytes=pin.pinned_bytes,
            grows=grows,
            since=self._watch.rises_since,
        )
        self._report(fact)


def is_told(told: frozenset[int], storages: frozenset[int]) -> bool:
    """Whether most of either are among the others; a few may be others by now, at an address that came again."""
    common = len(told & storages)
    return 2 * common >= len(storages) or (common >= MIN_TOLD_AGAIN and 2 * common >= len(told))
