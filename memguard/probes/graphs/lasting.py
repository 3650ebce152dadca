"""Whether what is held outlives the turn of the loop that made it, or hangs on variables of a call that ends soon."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from types import FrameType

import torch

from memguard.heap.children import ChildReader
from memguard.heap.frames import user_frames
from memguard.heap.roots import roots_of
from memguard.heap.snapshot import HeapSnapshot
from memguard.source.stores import is_in_loop


def outlives_its_turn(
    is_meant: Callable[[torch.Tensor], bool],
    *,
    models: Iterable[object] = (),
    extra: Iterable[tuple[str, object]] = (),
    frame: FrameType | None = None,
) -> bool:
    """Whether anything that lasts leads to some tensors: a global, a model, a variable outside of all loops.

    A search tree or an episode is reached from the function alone that made it, and that is called once a turn.

    Args:
        is_meant: Recognises the tensors.
        models: Watched root models.
        extra: Further objects by name: trainer, callbacks.
        frame: Where the stack begins; the caller's frame if not given.

    Returns:
        True also where no function is called in a loop, or too much is in reach to tell.
    """
    frames = list(user_frames(sys._getframe(1) if frame is None else frame))
    lasting = [one for index, one in enumerate(frames) if not any(map(is_in_loop, frames[index + 1 :]))]
    if len(lasting) == len(frames):
        return True
    roots = roots_of(lasting, models, extra)
    with HeapSnapshot(roots, reader=ChildReader(frames)) as snapshot:
        return not snapshot.complete or any(is_meant(link.value) for link in snapshot.tensors)
