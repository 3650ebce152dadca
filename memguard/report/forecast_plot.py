"""The bands of a forecast's plot: bytes of each owner over the step, stacked."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from memguard.forecast.result import Forecast

COLOURS = {
    "parameters": "#4269d0",
    "buffers": "#9498a0",
    "gradients": "#ff725c",
    "optimizer states": "#6cc5b0",
    "gathered parameters": "#9c6b4e",
    "communication buffers": "#3ca951",
    "activations": "#efb118",
    "inputs": "#97bbf5",
    "workspaces": "#a463f2",
    "temporaries": "#ff8ab7",
}
"""Colour of each owner, bottom band first."""


def bands(forecast: Forecast) -> list[tuple[str, list[int], list[int]]]:
    """Owner, lower edge and upper edge of each band, bottom first; empty without points."""
    if not forecast.plot:
        return []
    edges = [[0] * len(forecast.plot)]
    owners = [owner for owner in COLOURS if any(point.owners.get(owner) for point in forecast.plot)]
    for owner in owners:
        edges.append([low + point.owners.get(owner, 0) for low, point in zip(edges[-1], forecast.plot, strict=True)])
    return [(owner, lower, upper) for owner, (lower, upper) in zip(owners, pairwise(edges), strict=True)]
