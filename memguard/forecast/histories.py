"""What an optimizer collects over many steps, put there before its second one: a forecast looks at few."""

from __future__ import annotations

import torch
from torch.optim.optimizer import Optimizer

from memguard.forecast.tracer import Tracer
from memguard.text.units import format_bytes


def fill_history(tracer: Tracer, optimizer: Optimizer) -> None:
    """Gives L-BFGS the history that it will have: its own test whether to add to it reads a value, which is unknown.

    Args:
        tracer: Told that the history is counted as full.
        optimizer: Any; it is about to step.
    """
    if not isinstance(optimizer, torch.optim.LBFGS):
        return
    [group] = optimizer.param_groups
    state = next((each for each in optimizer.state.values() if "old_dirs" in each and "d" in each), None)
    if state is None:
        return
    size, direction = int(group["history_size"]), state["d"]
    # While a further iteration evaluates the closure, the newest pair lies in the step's own variables already.
    wanted = size - (group["max_iter"] > 1)
    if len(state["old_dirs"]) >= wanted:
        return
    while len(state["old_dirs"]) < wanted:
        state["old_dirs"].append(torch.empty_like(direction))
        state["old_stps"].append(torch.empty_like(direction))
        state["ro"].append(direction.new_empty(()))
    nbytes = 2 * size * direction.numel() * direction.element_size()
    tracer.note(
        f"LBFGS's history is counted as full from the second step on: {size} directions and steps, "
        f"{format_bytes(nbytes)} (history_size={size})"
    )
