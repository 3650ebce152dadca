"""Whether tensors are held by one variable alone, so that deleting it frees them."""

from __future__ import annotations

import gc
import types
from collections.abc import Mapping, Sequence
from itertools import islice

import torch

from memguard.heap.containers import elements_of
from memguard.heap.tensors import is_tensor
from memguard.torch_objects.storages import users_of

MAX_PARTS = 256


def is_held_elsewhere(value: object, variables: Mapping[str, object], others: Sequence[object] = ()) -> bool:
    """Whether anything else refers to a value, or to what is in it; asks all objects, some 10 to 30 ms.

    Of views of other tensors, and of tensors of other classes, that is not known: they count as held.

    Args:
        value: A tensor, or a list, tuple or dict.
        variables: The dict by which the function's variables were read, which has it too.
        others: What may refer to it besides.
    """
    parts: list[object] = [value]
    for part in parts:
        if len(parts) > MAX_PARTS:
            return True  # too many to be sure
        if type(part) is torch.Tensor:
            if part._base is not None or (users_of(part) or 1) > 1:
                return True
        elif is_tensor(part):
            return True
        else:
            parts += islice(elements_of(part), MAX_PARTS + 1)
    asked = tuple(parts)  # from Python 3.13 on, the arguments of the call below are found as well
    own = {id(part) for part in (*parts, parts, asked, variables, *others)}
    referrers = gc.get_referrers(*asked)
    return any(id(one) not in own and type(one) is not types.FrameType for one in referrers)
