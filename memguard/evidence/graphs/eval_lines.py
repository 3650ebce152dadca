"""Lines that call a trained model and build graphs that no backward uses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from torch import nn

from memguard.evidence.forward_outputs import graph_bytes
from memguard.evidence.graph_tracker import ForwardGraph
from memguard.evidence.minimum_sizes import LEAST
from memguard.records.facts import NOWHERE, Place

MIN_UNUSED = 3
"""Graphs of one line that died unused."""
LARGER = 1.5
"""Its graph over those that were used, from where on it is told: else it adds nothing to the peak."""
MOST_LINES = 16
"""Lines of a run that are followed."""


@final
@dataclass(slots=True)
class _Line:
    forwards: int = 0
    used: int = 0
    unused: int = 0
    bytes: int | None = None
    told: bool = False
    since: int = 0
    """Optimizer steps before the first of the unused."""


@final
class EvalLines:
    """Tells the graphs of evaluation apart by the line that called the model, and by the model's class.

    Where an evaluation adapts to a task, attacks or explains, backwards run through some of its graphs; each task may
    have a copy of the model. A line whose graphs none ever used is told where they are larger than those that one did.
    So it is in training, where one call alone may be for its values: of a whole roll-out, of a pool to choose from.
    There a model may be trained as a part of another one, and asked by itself for values: all it does as a part counts
    as one line.

    Args:
        training: Whether to follow forwards in training, else those of evaluation.
    """

    def __init__(self, *, training: bool = False) -> None:
        self._training = training
        self._lines: dict[tuple[Place, str], _Line] = {}

    def answered(self, module: nn.Module, mark: ForwardGraph, output: object) -> None:
        """Sizes what the second forward of a line built."""
        line = self._line(mark, type(module).__name__, new=True)
        if line is not None:
            line.forwards += 1
            if line.forwards == 2:
                line.bytes = graph_bytes(module, output)
            elif mark.outer is not None and line.forwards & (line.forwards - 1) == 0:
                line.bytes = max(line.bytes or 0, graph_bytes(module, output) or 0)  # it may be of several sizes

    def died(
        self, mark: ForwardGraph, name: str, least: int = LEAST, *, few: bool = False
    ) -> tuple[Place, int, int, int] | None:
        """Counts a graph that died; the line, if it is to be told, its unused graphs, its forwards and bytes of one.

        Args:
            mark: The graph's.
            name: The model's class.
            least: Bytes from which on it is told.
            few: Whether too few graphs of this model itself died unused: then the line's are of several models, which
                are evaluated where steps lie between, as after each fold; all at once they may be teachers.
        """
        line, place = self._line(mark, name, new=False), self._place(mark)
        if line is None or place is None:
            return None
        if mark.used:
            line.used += 1
            return None
        line.unused += 1
        line.since = mark.steps if line.unused == 1 else line.since
        if few and line.since == mark.steps:
            return None
        if mark.outer is not None or line.told or line.used or line.unused < MIN_UNUSED or (line.bytes or 0) < least:
            return None
        others = [other.bytes or 0 for (_, of), other in self._lines.items() if of == name and other.used]
        if self._training and not any(others):
            return None  # what its backwards need is not known yet
        if (line.bytes or 0) < LARGER * max(others, default=0):
            return None
        line.told = True
        return place, line.unused, line.forwards, line.bytes or 0

    def _line(self, mark: ForwardGraph, name: str, *, new: bool) -> _Line | None:
        if mark.training is not self._training or mark.stage.evaluates is self._training:
            return None
        place = self._place(mark)
        if place is None or mark.fed:
            return None
        key, known = (place, name), place.file is not None or mark.outer is not None
        if new and key not in self._lines and len(self._lines) < MOST_LINES and known:
            self._lines[key] = _Line()
        return self._lines.get(key)

    def _place(self, mark: ForwardGraph) -> Place | None:
        """What stands for the line of a forward."""
        if not self._training:
            return mark.site if mark.outer is None else None
        return NOWHERE if mark.outer is not None else mark.asked or mark.site
