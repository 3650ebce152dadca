"""How many optimizer steps are running, from the stack."""

from __future__ import annotations

import sys
from types import FrameType

from torch.optim.optimizer import Optimizer


def _nothing() -> None:
    pass


_STEP = Optimizer.profile_hook_step(_nothing).__code__  # the frame that calls the hooks; checked in torch 2.13


def steps_under_way() -> int:
    """Calls of `Optimizer.step` on the stack of this thread, one in the other."""
    count = 0
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        count += frame.f_code is _STEP
        frame = frame.f_back
    return count
