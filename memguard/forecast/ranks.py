"""Which ranks of a training are alike, found by tracing few of them. Knows no torch.

Along each dimension of the largest device mesh that the code makes (without one: along the ranks), the first and the
last are traced, with the other coordinates at zero. Where both traces are the same event by event, all between them are
taken to be the same; where they differ, those on both sides of each place where shards become smaller are traced, else
the one in the middle, and so on.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import final

from memguard.errors import MemGuardError
from memguard.forecast.trace import Mesh, Trace

_MOST_ROLES = 64

Interval = tuple[int, int]
"""First and last coordinate along a dimension, of ranks that are alike."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """Ranks that are alike."""

    name: str
    """Where in the mesh they are, like ``pp 0 (first)``; "" if all ranks are alike."""
    rank: int
    """The one that was traced."""
    count: int


def find_roles(world: int, trace: Callable[[int], Trace], make_all: Callable[[Iterable[int]], None]) -> list[Role]:
    """The roles of a training's ranks; each of their first ranks has been traced.

    Raises:
        MemGuardError: A rank could not be traced, or there are too many roles.
    """
    mesh = trace(0).mesh or Mesh(names=("rank",), shape=(world,), ranks=tuple(range(world)))
    cuts = {name: {cut for each, cut in trace(0).cuts if each == name} for name in mesh.names}
    divided = [_divide(mesh, dimension, cuts[name], trace, make_all) for dimension, name in enumerate(mesh.names)]
    chosen = list(itertools.product(*divided))
    if len(chosen) > _MOST_ROLES:
        raise MemGuardError(f"{len(chosen)} ranks of this training are unlike each other, more than {_MOST_ROLES}")
    ranks = [mesh.rank_at([interval[0] for interval in intervals]) for intervals in chosen]
    make_all(ranks)
    found = []
    for rank, intervals in zip(ranks, chosen, strict=True):
        count = 1
        for first, last in intervals:
            count *= last - first + 1
        found.append(Role(name=_name(mesh, intervals), rank=rank, count=count))
    return found


def _divide(
    mesh: Mesh, dimension: int, cuts: set[int], trace: Callable[[int], Trace], make_all: Callable[[Iterable[int]], None]
) -> list[Interval]:
    """The intervals of one dimension in which ranks are alike; where they differ, they probably do at the cuts."""
    size = mesh.shape[dimension]

    def rank(coordinate: int) -> int:
        return mesh.rank_at([coordinate if each == dimension else 0 for each in range(len(mesh.shape))])

    def alike(one: int, other: int) -> bool:
        return _alike(trace(rank(one)), trace(rank(other)))

    waiting: list[Interval] = [(0, size - 1)]
    done: list[Interval] = []
    while waiting:
        make_all({rank(end) for interval in waiting for end in interval})
        unlike = [interval for interval in waiting if not alike(*interval)]
        done += [interval for interval in waiting if interval not in unlike]
        waiting = [part for interval in unlike for part in _parts(*interval, cuts)]
    found: list[Interval] = []
    for first, last in sorted(done):
        if found and alike(found[-1][1], first):
            found[-1] = (found[-1][0], last)
        else:
            found.append((first, last))
    return found


def _parts(first: int, last: int, cuts: set[int]) -> list[Interval]:
    """An interval in two at its middle, which is in both; or at its cuts."""
    inner = sorted(cut for cut in cuts if first < cut <= last)
    if not inner:
        middle = (first + last) // 2
        return [(first, middle), (middle, last)] if middle > first else [(first, first), (last, last)]
    return list(zip([first, *inner], [*(cut - 1 for cut in inner), last], strict=True))


def _alike(one: Trace, other: Trace) -> bool:
    """Whether the same memory is taken and given back in the same order."""
    if one is other:
        return True
    if len(one.events) != len(other.events):
        return False
    return all(a[:4] == b[:4] for a, b in zip(one.events, other.events, strict=True))


def _name(mesh: Mesh, intervals: Sequence[Interval]) -> str:
    parts = []
    for name, size, (first, last) in zip(mesh.names, mesh.shape, intervals, strict=True):
        if (first, last) == (0, size - 1):
            continue
        if first == last:
            end = " (first)" if first == 0 else " (last)" if last == size - 1 else ""
            parts.append(f"{name} {first}{end}")
        else:
            parts.append(f"{name} {first} to {last}")
    return ", ".join(parts)
