"""Whether a backward runs on this thread: a forward that it calls computes a checkpointed part again."""

from __future__ import annotations

from collections.abc import Callable

import torch

_task: Callable[[], int] | None = getattr(torch._C, "_current_graph_task_id", None)  # checked in torch 2.13
"""Number of the backward that runs on this thread, or -1."""


def in_backward() -> bool:
    """Whether a backward runs; False where torch cannot tell."""
    return _task is not None and _task() != -1
