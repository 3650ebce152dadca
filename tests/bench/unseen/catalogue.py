"""Every program by its name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from unseen import (
    adapted,
    architectures,
    attentions,
    compounds,
    convolutions,
    gradients,
    indexing,
    losses,
    matrices,
    modules,
    norms,
    own_optimizers,
    pointwise,
    reductions,
    several_models,
    shapes,
    zoo,
)
from unseen.operators import build

Build = Callable[[], tuple[Any, Any, Callable[[], Any]]]


def operators() -> dict[str, Build]:
    """Single operators, in each precision that suits them."""
    families = (
        *(pointwise, reductions, indexing, shapes, matrices, norms, convolutions, losses, attentions, compounds),
    )
    found: dict[str, Build] = dict(modules.programs())
    for family in families:
        for program in family.PROGRAMS:
            for precision in program.precisions:
                found[f"{program.name}, {precision}"] = lambda p=program, q=precision: build(p, q)
    return found


def steps() -> dict[str, Build]:
    """Whole training steps."""
    found: dict[str, Build] = {}
    for family in (several_models, own_optimizers, gradients, architectures, adapted):
        found.update(family.PROGRAMS)
    return {**found, **zoo.programs()}
