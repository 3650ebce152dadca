"""Layouts of one training: the sizes of its device meshes by the names of their dimensions. Knows no torch."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from memguard.errors import MemGuardError

Layout = tuple[tuple[str, int], ...]
"""Names of dimensions and how many ranks lie along each."""


def parse_layout(text: str) -> dict[str, int]:
    """The sizes that ``dp=4,tp=2`` names.

    Raises:
        MemGuardError: It is written otherwise.
    """
    found = {}
    for part in text.split(","):
        name, equals, number = part.partition("=")
        if not name.strip() or not equals or not number.strip().isdigit():
            raise MemGuardError(f"{text!r} is no layout; write the sizes of the mesh by name, like dp=4,tp=2")
        found[name.strip()] = int(number)
    return found


def layouts_of(meshes: Iterable[Mapping[str, int]], world: int | None) -> tuple[Layout, ...]:
    """The same, checked.

    Raises:
        ValueError: One of them has no dimension, or not as many ranks as the training.
    """
    found = []
    for mesh in meshes:
        layout = tuple(mesh.items())
        if world is None:
            raise ValueError(f"a layout ({layout_text(layout)}) needs nproc, the number of processes on each node")
        ranks = math.prod(size for _, size in layout)
        if not layout or ranks != world:
            raise ValueError(f"the layout {layout_text(layout)} has {ranks} ranks, and the training {world}")
        found.append(layout)
    return tuple(found)


def layout_text(layout: Layout) -> str:
    """As people write it."""
    return ", ".join(f"{name} {size}" for name, size in layout)
