"""Watches the weights of a program with no code of memguard's: a digest of what each optimizer stepped, at the end."""

from __future__ import annotations

import atexit
import hashlib
import itertools
import os
import random
import weakref
from pathlib import Path
from typing import Any

_digests: dict[int, Any] = {}
_numbers: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
_count = itertools.count()


def watch_weights(folder: str) -> None:
    """Has the digests of this process written into a folder as it ends, with what its random numbers came to."""
    from torch.optim.optimizer import register_optimizer_step_post_hook

    register_optimizer_step_post_hook(_stepped)
    atexit.register(write_weights, folder)


def write_weights(folder: str) -> None:
    """Writes them now, for a process that ends without saying so."""
    import torch

    state = f"{random.getstate()}{torch.get_rng_state().tolist()}".encode()
    text = "".join(f"{number} {digest.hexdigest()}\n" for number, digest in sorted(_digests.items()))
    text += f"random {hashlib.blake2b(state, digest_size=8).hexdigest()}\n"
    (Path(folder) / str(os.getpid())).write_text(text)


def _stepped(optimizer: Any, args: object, kwargs: object) -> None:
    import torch

    if (number := _numbers.get(optimizer)) is None:
        number = _numbers[optimizer] = next(_count)
    digest = _digests.setdefault(number, hashlib.blake2b(digest_size=8))
    with torch.no_grad(), torch._C._DisableTorchDispatch():
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if type(parameter.data) is torch.Tensor and parameter.device.type == "cpu" and not parameter.is_sparse:
                    digest.update(parameter.data.contiguous().view(-1).view(torch.uint8).numpy().data)
