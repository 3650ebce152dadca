"""Small views that keep large storages alive, by the container that holds them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import final

import torch

from memguard.facts import Place
from memguard.probes.naming.holders import Survey
from memguard.probes.naming.walk import Link
from memguard.probes.objects import is_user_class
from memguard.probes.objects.sizes import storage_key, storages_of
from memguard.probes.objects.sole import users_of
from memguard.probes.owners import state_of

MIN_STORAGE_BYTES = 1 << 20
RATIO = 8
"""A storage is pinned if all views of it together, times this, are still smaller."""


@final
@dataclass(frozen=True, slots=True)
class Pin:
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


def find_pins(
    survey: Survey,
    *,
    ignore: Collection[int] = (),
    min_storage_bytes: int = MIN_STORAGE_BYTES,
    device_type: str | None = None,
) -> tuple[Pin, ...]:
    """Who holds views that use less than an eighth of the storages they keep, the heaviest first.

    Args:
        survey: A walk over the live objects.
        ignore: Keys of storages whose views are wanted: parameters, gradients, buckets.
        min_storage_bytes: Smaller storages are left out.
        device_type: Only storages on this kind of device, like ``"cuda"``; all if None.
    """
    views: dict[int, list[Link]] = {}
    sizes: dict[int, int] = {}
    for link in survey.tensors:
        key = storage_key(link.value)
        if key is None or key[0] in ignore or key[1] < min_storage_bytes:
            continue
        if device_type is not None and link.value.device.type != device_type:
            continue
        base = link.value._base
        if issubclass(type(link.value), torch.nn.Parameter) or issubclass(type(base), torch.nn.Parameter):
            continue
        views.setdefault(key[0], []).append(link)
        sizes[key[0]] = key[1]
    pinned: list[tuple[Link, int]] = []
    used: dict[int, int] = {}
    for storage, links in views.items():
        distinct = {(link.value.storage_offset(), tuple(link.value.shape)): _bytes(link.value) for link in links}
        if sum(distinct.values()) * RATIO < sizes[storage]:
            used[storage] = sum(distinct.values())
            pinned.extend((link, 0) for link in links)
    found = []
    for holder, links in survey.by_holder(pinned):
        storages = {key[0] for link in links if (key := storage_key(link.value)) is not None}
        # Of a long container only some elements were looked at.
        scale = max(holder.length / len(links), 1) if holder.length > len(links) else 1
        storages -= {storage for storage in storages if _has_others(views[storage], scale)}
        if not storages:
            continue
        total = sum(sizes[storage] for storage in storages)
        small = sum(used[storage] for storage in storages)
        found.append(
            Pin(
                holder.place,
                views=int(len(links) * scale),
                used_bytes=int(small * scale),
                pinned_bytes=int(total * scale),
                storages=frozenset(storages),
                met_bytes=total,
            )
        )
    return tuple(sorted(found, key=lambda pin: -pin.pinned_bytes))


def _has_others(links: Sequence[Link], scale: float) -> bool:
    """Whether a storage has more views than were met, and than those that were met stand for: others have them."""
    met = [link.value for link in links]
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
