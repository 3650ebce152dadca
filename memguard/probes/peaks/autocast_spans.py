"""Whether an autocast region that is open between two batches is one for both, or one that every batch enters anew."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from types import FrameType

import torch.utils.checkpoint

from memguard.probes.objects.frames import is_user_frame
from memguard.source.parsing import parse_file
from memguard.source.regions import Regions

_CHECKPOINT = torch.utils.checkpoint.__file__
_LOOPS = (ast.For, ast.While, ast.AsyncFor)


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
            around = list(_around(frame))
            region = _region(around, frame)
            if region is not None:
                inside = around[around.index(region) + 1 :]
                return loops or any(isinstance(node, _LOOPS) for node in inside)
            loops = loops or any(isinstance(node, _LOOPS) for node in around)
        frame = frame.f_back
    return True


def _around(frame: FrameType) -> Iterator[ast.AST]:
    """The ``with`` statements and loops of a frame's function around the line that runs, outermost first."""
    tree = parse_file(frame.f_code.co_filename)
    if tree is None:
        return
    first, line = frame.f_code.co_firstlineno, frame.f_lineno
    for node in ast.walk(tree):  # breadth first: outer before inner
        if isinstance(node, (ast.With, *_LOOPS)) and node.lineno >= first:
            body = node.body
            if body[0].lineno <= line <= (body[-1].end_lineno or body[-1].lineno):
                yield node


def _region(around: Sequence[ast.AST], frame: FrameType) -> ast.AST | None:
    """The innermost of some statements that enters an autocast region."""
    entering = [node for node in around if isinstance(node, ast.With)]
    tree = parse_file(frame.f_code.co_filename) if entering else None
    if tree is None:
        return None
    regions = Regions(tree)
    opening = (node for node in reversed(entering) if any(regions.is_one(item.context_expr) for item in node.items))
    return next(opening, None)
