"""Which ranks differ from the rest, as a group of a parallel axis: ``pp=3``, ``node 7``, ``ep=2 of dp=0``. No torch.

One figure of each rank is explained by where the rank is. Of all groups that the highest rank belongs to (its place on
one, two or three axes, or itself alone), the one whose ranks together explain most of the variance is the group.
Healthy ranks differ along an axis too: pipeline stages keep fewer micro-batches the later they are, the first process
of a node has more on its device. So groups are also compared with what is usual at each place of an axis taken away.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, final

import numpy as np

from memguard.axes import AXES, places_in

Array: TypeAlias = "np.ndarray[Any, Any]"
Place: TypeAlias = "Mapping[str, int | str]"
_Columns: TypeAlias = "Mapping[str, Sequence[int | str | None]]"

NODE, LOCAL, RANK = "node", "local_rank", "rank"
EXPLAINED = 0.8
"""Share of the variance over the ranks that a group must explain, or else be apart from the others."""
_INSIDE, _OUTSIDE = 0.9, 0.01
"""Apart is a group of which so many are above the middle between its median and the others', and of these hardly any:
among many ranks a few explain little, however far above they are."""
_KNOWN = 0.5
"""Share of the ranks that must have a figure for a group to be named by it."""
_SIMPLER = 0.01
"""What each further axis must explain to be worth naming; a rank by itself counts as half an axis more."""
_PREFERRED = 0.002
"""A tie goes to the axis that the figure is more likely to follow."""
_MOST_AXES = 3
_PROFILE, _BY_CHANCE = 0.1, 2.0
"""Share of the variance that the quartiles along an axis must explain to be taken away, beyond so many ranks' parts for
each place: quartiles of a few explain something by chance."""
_FEWEST_AT_A_PLACE = 4
"""Ranks with the same place on an axis. Their lower quartile is what is usual there: some of them may be too high."""
_UNLIKE = ("pp", "ep", "tp", "cp")
"""Axes whose places do different work; replicas and shards (dp, fsdp) do the same."""
_UNEQUAL = ("pp", "ep", "cp", LOCAL)
"""Axes whose healthy places may differ in size by design: other layers, tokens, or processes on the device."""
_LUCK = 0.01
"""How likely a difference may be among ranks, or places, that are all healthy."""
_ASSUMED = 4
"""Ranks that what is assumed of healthy ranks counts for, beside those that are compared."""
_NAMES = {"pp": "stage", "ep": "expert", "tp": "tensor-parallel part", "cp": "context part"}


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Some ranks that differ from the others."""

    axes: dict[str, int | str]
    """What they have in common that no other rank has, like ``{"pp": 3}``; ``{"rank": 7}`` for one alone."""
    ranks: tuple[int, ...]
    more: float
    """How much higher their figure is, in the median."""
    outside: float
    """Median of the others' figures."""
    rest: Array
    """The figures of all ranks if these were as the others."""
    words: str
    """Like ``"pp=3 (the last stage)"``, ``"node 7"`` or ``"rank 17 (pp=0, tp=1)"``."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Healthy:
    """How much healthy ranks may differ in a figure."""

    spread: Callable[[Array], float]
    """From the positions of the ranks that are compared with: the standard deviation that is assumed of them."""
    differ: Array | None = None
    """The figure as it is compared, where the one that names groups is cut: a rise that is no steady growth counts 0.
    Places of an axis do not differ in it by design."""


@final
class Fleet:
    """The places of all ranks."""

    def __init__(self, places: Mapping[int, Place]) -> None:
        self.ranks = sorted(places)
        self._positions = {rank: at for at, rank in enumerate(self.ranks)}
        names = [*AXES, NODE, LOCAL]
        columns = {name: [places[rank].get(name) for rank in self.ranks] for name in names}
        self._columns = {name: values for name, values in columns.items() if len(set(values)) > 1}
        self._last = {
            name: max((value for value in values if isinstance(value, int)), default=None)
            for name, values in self._columns.items()
        }

    def place(self, rank: int) -> dict[str, int | str]:
        """A rank's place on the axes that tell ranks apart."""
        at = self._positions[rank]
        return {name: value for name, values in self._columns.items() if (value := values[at]) is not None}

    def outlier(self, values: Array, *, of_host: bool = False, healthy: Healthy | None = None) -> Group | None:
        """The group that is above the rest; None where no group explains the figure.

        Args:
            values: The figure of each rank, in the order of `ranks`; NaN where it is unknown. A rank without one is in
                no group; where most have none, there is no group.
            of_host: Whether it is one of the host, which follows nodes rather than parallel axes.
            healthy: How healthy ranks differ: then a group that may be above the rest by chance is none.
        """
        known = np.flatnonzero(~np.isnan(values))
        if len(known) < max(2, _KNOWN * len(values)):
            return None
        figures = values[known]
        columns = {name: [column[at] for at in known.tolist()] for name, column in self._columns.items()}
        found: list[tuple[float, tuple[str, ...], Array, Array]] = []
        for usual in _profiles(figures, columns):
            best = _best_group(figures - usual, columns, of_host)
            if best is None:
                continue
            found.append((*best, usual))
            if not usual.any():
                break  # it explains the figure as it is
        if not found:
            return None
        _, names, mask, usual = max(found, key=lambda each: each[0])
        beyond = figures - usual
        if healthy is not None and self._may_be_chance(beyond, mask, names, columns, healthy, known):
            return None
        others = float(np.median(beyond[~mask]))
        rest = values.copy()
        rest[known[mask]] = usual[mask] + others
        members = tuple(self.ranks[at] for at in known[mask].tolist())
        place = self.place(members[0])
        axes = {name: place[name] for name in names}
        return Group(
            axes=axes or {RANK: members[0]},
            ranks=members,
            more=float(np.median(beyond[mask])) - others,
            outside=float(np.median(figures[~mask])),
            rest=rest,
            words=self.words(axes) if axes else self.rank_words(members[0]),
        )

    @staticmethod
    def _may_be_chance(
        values: Array, mask: Array, names: tuple[str, ...], columns: _Columns, healthy: Healthy, known: Array
    ) -> bool:
        """Whether healthy ranks may differ as much: one rank from another, and one place of an axis from another."""
        if healthy.differ is not None:
            values = healthy.differ[known]
        assumed = healthy.spread(known[~mask])
        places = _numbers(columns, names) if names else np.arange(len(values))
        tried = (int(places.max()) + 1) * (len(columns) + 1)  # as many groups on each axis, and single ranks
        if _by_chance(values, mask, tried, assumed) > _LUCK:
            return True
        unequal = [name for name in names if name in _UNEQUAL]
        if not names:  # a stage, or an expert, may be a single rank
            top = int(mask.argmax())
            unequal = [name for name in columns if name in _UNEQUAL and columns[name].count(columns[name][top]) == 1]
        if healthy.differ is not None or not unequal:
            return False
        places = _numbers(columns, names) if names else places
        medians = np.asarray([np.median(values[places == place]) for place in range(int(places.max()) + 1)])
        top_place = np.arange(len(medians)) == places[int(mask.argmax())]
        return _by_chance(medians, top_place, len(medians), None) > _LUCK

    def around(self, ranks: Sequence[int], chance: float, *, of_host: bool = False) -> Group | None:
        """The smallest place on one axis that all of some ranks have; None where they may have it by chance.

        Args:
            ranks: Two or more.
            chance: How likely it may be that so many ranks, drawn at random, have a place in common.
            of_host: Whether what they have in common is of the host: then the place is a node.
        """
        names = [name for name in self._columns if (name == NODE if of_host else name in AXES)]
        best: tuple[int, str] | None = None
        for name in names:
            places = {self._columns[name][self._positions[rank]] for rank in ranks}
            size = self._columns[name].count(next(iter(places)))
            by_chance = len(names) * (size / len(self.ranks)) ** (len(ranks) - 1)
            if len(places) == 1 and None not in places and by_chance < chance:
                best = min((size, name), best or (size, name))
        if best is None:
            return None
        place = self._columns[best[1]][self._positions[ranks[0]]]
        inside = np.asarray([each == place for each in self._columns[best[1]]])
        values = np.isin(self.ranks, ranks).astype(float)
        axes: dict[str, int | str] = {best[1]: place} if place is not None else {}
        return Group(
            axes=axes,
            ranks=tuple(np.asarray(self.ranks)[inside].tolist()),
            more=1.0,
            outside=0.0,
            rest=np.where(inside, 0.0, values),
            words=self.words(axes),
        )

    def by_axis(self, values: Array) -> tuple[str, dict[int | str, float]] | None:
        """The parallel axis along which the figure differs, with its median at each place; None where none does.

        Args:
            values: The figure of each rank, in the order of `ranks`; NaN where it is unknown.
        """
        known = ~np.isnan(values)
        if not known.any():
            return None
        ours, values = np.flatnonzero(known).tolist(), values[known]
        total = float(((values - values.mean()) ** 2).sum())
        best: tuple[float, str, dict[int | str, float]] | None = None
        for name in sorted(AXES, key=lambda each: each not in _UNLIKE):
            if name not in self._columns:
                continue
            column = np.asarray([-1 if (each := self._columns[name][at]) is None else each for at in ours])
            places, inverse, counts = np.unique(column, return_inverse=True, return_counts=True)
            if len(places) > len(values) // 2:
                continue  # a place for every rank or two explains anything
            means = np.bincount(inverse, weights=values) / counts
            between = float((counts * (means - values.mean()) ** 2).sum())
            score = between / total if total > 0 else 0.0
            if score >= EXPLAINED and (best is None or score > best[0]):
                medians: dict[int | str, float] = {
                    int(place): float(np.median(values[column == place])) for place in places.tolist()
                }
                best = (score, name, medians)
        return best[1:] if best is not None else None

    def words(self, axes: Mapping[str, int | str]) -> str:
        """A group in words."""
        return " of ".join(self._axis_words(name, value) for name, value in axes.items())

    def _axis_words(self, name: str, value: int | str) -> str:
        if name == NODE:
            return f"node {value}"
        if name == LOCAL:
            return f"local rank {value} of each node"
        if name == "pp":
            last = {0: "the first stage", self._last["pp"]: "the last stage"}
            return f"pp={value}" + (f" ({last[value]})" if value in last else "")
        return f"{name}={value}"

    def rank_words(self, rank: int) -> str:
        """One rank in words, with its place on the parallel axes."""
        inside = ", ".join(f"{name}={value}" for name, value in self.place(rank).items() if name in AXES)
        return f"rank {rank}" + (f" ({inside})" if inside else "")


def what_is(axis: str) -> str:
    """An axis's places in the field's words, like ``"stages"``."""
    return f"{_NAMES.get(axis, axis + ' place')}s"


def place_in(session: Mapping[str, Any]) -> dict[str, int | str]:
    """A rank's place, from what its recording says of itself."""
    place: dict[str, int | str] = dict(places_in(session.get("coordinates")))
    node = session.get("node") if session.get("node") is not None else session.get("host")
    if isinstance(node, str):
        place[NODE] = node
    if type(local := session.get("local_rank")) is int:
        place[LOCAL] = local
    return place


def _likely(axis: str, of_host: bool) -> float:
    """How likely a figure follows an axis: the host's follows nodes, the device's parts of the model."""
    if of_host or axis in (NODE, LOCAL):
        return float(of_host and axis == NODE)
    return 1.0 if axis in _UNLIKE else 0.5


def _profiles(values: Array, columns: _Columns) -> Iterator[Array]:
    """What may be usual at each rank: nothing, then what differs along one axis, then along all of them together."""
    yield np.zeros_like(values)
    both, count = np.zeros_like(values), 0
    for name, column in columns.items():
        if name == NODE:
            continue
        alone, together = _along(values, column), _along(values - both, column)
        if alone is not None:
            yield alone
        if together is not None:
            both, count = both + together, count + 1
    if count > 1:
        yield both


def _along(values: Array, column: Sequence[int | str | None]) -> Array | None:
    """The quartile at each rank's place on an axis, less that of all; None where places are few ranks or much alike."""
    numbers = {place: number for number, place in enumerate(dict.fromkeys(column))}
    at = np.asarray([numbers[place] for place in column])
    counts = np.bincount(at)
    if np.median(counts) < _FEWEST_AT_A_PLACE:
        return None
    ordered, first = values[np.lexsort((values, at))], np.cumsum(counts) - counts
    quartiles = ordered[first + (counts - 1) // 4]
    profile: Array = quartiles[at] - np.sort(values)[(len(values) - 1) // 4]
    by_chance = _BY_CHANCE * len(counts) / len(values)
    return profile if profile.var() > (_PROFILE + by_chance) * values.var() else None


def _best_group(values: Array, columns: _Columns, of_host: bool) -> tuple[float, tuple[str, ...], Array] | None:
    """Of the highest rank's groups the one that explains most: its score, axes (none for the rank alone) and ranks.

    None where none explains enough.
    """
    top, total = int(values.argmax()), float(((values - values.mean()) ** 2).sum())
    if total <= 0:
        return None
    masks = {
        name: np.asarray([each == column[top] for each in column])
        for name, column in columns.items()
        if column[top] is not None
    }
    alone = np.arange(len(values)) == top
    found: list[tuple[float, tuple[str, ...], Array]] = [(_score(values, alone, total) - 1.5 * _SIMPLER, (), alone)]
    for count in range(1, _MOST_AXES + 1):
        for names in itertools.combinations(masks, count):
            if NODE in names and count > 1:
                continue  # a node is one machine: what some of its ranks have is of their places, or of each alone
            mask = np.logical_and.reduce([masks[name] for name in names])
            if mask.sum() > 1 and not mask.all():
                likely = sum(_likely(name, of_host) for name in names) / count
                score = _score(values, mask, total) - _SIMPLER * count + _PREFERRED * likely
                found.append((score, names, mask))
    best = max(found, key=lambda each: each[0])
    return best if best[0] >= EXPLAINED - _SIMPLER * _MOST_AXES or _is_apart(values, best[2]) else None


def _is_apart(values: Array, mask: Array) -> bool:
    """Whether the middle between a group's median and the others' is between the two groups."""
    inside, outside = values[mask], values[~mask]
    middle = (np.median(inside) + np.median(outside)) / 2
    above: float = (inside > middle).mean()
    return middle > np.median(outside) and above >= _INSIDE and (outside >= middle).mean() <= _OUTSIDE


def _numbers(columns: _Columns, names: Sequence[str]) -> Array:
    """A number for each rank: of its place on some axes."""
    places = list(zip(*(columns[name] for name in names), strict=True))
    numbers = {place: number for number, place in enumerate(dict.fromkeys(places))}
    return np.asarray([numbers[place] for place in places])


def _by_chance(values: Array, mask: Array, groups: int, assumed: float | None) -> float:
    """How likely the highest of so many groups of healthy ranks is so far above the others: a t-test.

    Args:
        values: The figure of each rank, or place.
        mask: The group.
        groups: How many there are of its kind.
        assumed: Standard deviation that is assumed of healthy ranks; None assumes nothing.
    """
    inside, outside = values[mask], values[~mask]
    more, freedom = float(inside.mean() - outside.mean()), len(values) - 2 + (_ASSUMED if assumed is not None else 0)
    if more <= 0 or freedom < 1:
        return 1.0
    squares = float(((inside - inside.mean()) ** 2).sum() + ((outside - outside.mean()) ** 2).sum())
    squares += _ASSUMED * (assumed or 0.0) ** 2
    explained = more**2 / (1 / len(inside) + 1 / len(outside))
    if squares <= 0:
        return 0.0
    deviations = math.sqrt(freedom * math.log1p(explained / squares)) * (8 * freedom + 1) / (8 * freedom + 3)
    return groups * math.erfc(deviations / math.sqrt(2)) / 2  # Wallace's normal deviate of Student's t


def _score(values: Array, mask: Array, total: float) -> float:
    """Share of the variance that a group explains."""
    inside, outside = values[mask], values[~mask]
    if not len(outside) or inside.mean() <= outside.mean():
        return 0.0
    between = len(inside) * len(outside) / len(values) * (inside.mean() - outside.mean()) ** 2
    return float(between / total)
