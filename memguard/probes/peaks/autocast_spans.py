"""Whether an autocast region that is open between two batches is one for both, or one that every batch enters anew."""

from __future__ import annotations

from types import FrameType

import torch.utils.checkpoint

from memguard.heap.frames import is_user_frame
from memguard.source.model import SourceModel
from memguard.source.sites import AutocastRegions

_CHECKPOINT = torch.utils.checkpoint.__file__


def spans_batches(frame: FrameType | None) -> bool:
    """Whether a loop stands between the region's ``with`` and what runs; True also where no such ``with`` is found.

    Where the model's call is the first that is heard of a batch, the last one ends inside the region of the next. And a
    checkpointed block that backward computes again is computed under the autocast of its forward.

    Args:
        frame: Where the stack begins.
    """
    loops = False
    while frame is not None:
        if frame.f_code.co_filename == _CHECKPOINT:
            return False
        if is_user_frame(frame):
            model = SourceModel.of(frame.f_code.co_filename)
            if model is not None:
                regions = AutocastRegions(model)
                entered, inner = regions.loop_inside(frame.f_code.co_firstlineno, frame.f_lineno)
                loops = loops or inner
                if entered:
                    return loops
        frame = frame.f_back
    return True
