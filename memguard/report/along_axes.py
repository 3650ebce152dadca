"""How the ranks' peaks follow a parallel axis: a group is highest, or they differ along an axis. No torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

from memguard.report.axis_groups import Fleet, Group, what_is
from memguard.report.rank_differences import Cause
from memguard.report.ranks import Spread
from memguard.report.text import ranks_text
from memguard.text.units import format_bytes

_SHOWN = 4
_WITHIN = "its inputs and what it holds before the batch are as elsewhere, so the difference is in the activations: "
_CAUSES = {
    "ep": Cause(
        f"{_WITHIN}more tokens go to its experts",
        "balance the router (an auxiliary loss, a bias per expert) or cap the tokens of an expert (capacity factor).",
    ),
    "pp": Cause(
        f"{_WITHIN}earlier stages keep those of more micro-batches, and the last one has the loss",
        "move layers from this stage to others, checkpoint its activations, or use fewer micro-batches in flight.",
    ),
    "cp": Cause(f"{_WITHIN}its part of the sequence costs more", "split the sequence more evenly over the ranks."),
}
"""What it comes from where neither inputs nor what is held differ, and what helps."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Along:
    """What the peaks follow."""

    alike: frozenset[int]
    """The ranks that are as high as the highest one, itself among them."""
    where: str
    axes: tuple[str, ...] = ()
    medians: Mapping[int | str, float] | None = None
    """At each place of the one axis, where the peaks differ along it."""

    @classmethod
    def of(cls, fleet: Fleet, spread: Spread, worst: int) -> Along:
        """What the ranks' usual peaks follow: single spikes do not count.

        Args:
            fleet: Where the ranks are.
            spread: Their heights.
            worst: The rank with the highest one.
        """
        alone = cls(alike=frozenset({worst}), where=fleet.rank_words(worst))
        values = spread.usual()
        if fleet.ranks != spread.ranks or values is None:
            return alone
        group: Group | None = fleet.outlier(values)
        if group is not None and worst in group.ranks:
            return cls(alike=frozenset(group.ranks), where=group.words, axes=tuple(group.axes))
        found = fleet.by_axis(values)
        if found is None or fleet.place(worst).get(found[0]) is None:
            return alone
        axis, medians = found
        own = fleet.place(worst)[axis]
        alike = frozenset(rank for rank in fleet.ranks if fleet.place(rank).get(axis) == own)
        return cls(alike=alike, where=fleet.words({axis: own}), axes=(axis,), medians=medians)

    def words(self) -> str:
        """A sentence about the group, or the axis; empty for a rank alone."""
        if self.medians is not None:
            (axis,) = self.axes
            order = sorted(self.medians.items(), key=lambda each: -each[1])
            shown = order if len(order) <= _SHOWN else [*order[: _SHOWN - 1], order[-1]]
            told = ", ".join(f"{format_bytes(int(value))} at {axis}={place}" for place, value in shown)
            return f" Peaks differ between the {what_is(axis)}: {told}."
        if len(self.alike) == 1:
            return ""
        return f" The same holds for all of {self.where}: {ranks_text(sorted(self.alike))}."

    def causes(self) -> list[Cause]:
        """Why, by elimination: neither the inputs nor what is held differ."""
        return [_CAUSES[axis] for axis in self.axes if axis in _CAUSES][:1]
