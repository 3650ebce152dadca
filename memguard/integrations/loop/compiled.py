"""Models that torch.compile wrapped after they were guarded."""

from __future__ import annotations

import gc
from collections import OrderedDict

from torch import nn


def compiled_wrappers(model: nn.Module) -> list[nn.Module]:
    """Every living module that has the model as what it compiles (its ``_orig_mod``; checked in torch 2.4 and 2.13)."""
    wrappers: list[nn.Module] = []
    for holder in gc.get_referrers(model):
        if type(holder) in (dict, OrderedDict) and holder.get("_orig_mod") is model:
            wrappers += _owners_of(holder)
    return wrappers


def _owners_of(modules: dict[str, object]) -> list[nn.Module]:
    """The modules whose _modules dictionary this is."""
    owners: list[nn.Module] = []
    for state in gc.get_referrers(modules):
        if type(state) is dict and state.get("_modules") is modules:
            owners += [owner for owner in gc.get_referrers(state) if issubclass(type(owner), nn.Module)]
    if not owners:  # from Python 3.13 on, an object's attributes need no dictionary of their own
        owners = [owner for owner in gc.get_referrers(modules) if issubclass(type(owner), nn.Module)]
    return [owner for owner in owners if vars(owner).get("_modules") is modules]
