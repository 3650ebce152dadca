"""Where along a device mesh the shards of parameters become smaller, where their sizes do not divide by the ranks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

Cut = tuple[str, int]
"""Name of a mesh's dimension, and the coordinate from which on some shards are smaller."""


def cuts_of(tensors: Iterable[torch.Tensor]) -> tuple[Cut, ...]:
    """The cuts of all distributed tensors among these, as `torch.chunk` makes them: a last part, then empty ones."""
    found: set[Cut] = set()
    for tensor in tensors:
        placements: Any = getattr(tensor, "placements", None)
        mesh: Any = getattr(tensor, "device_mesh", None)
        if placements is None or not getattr(mesh, "mesh_dim_names", None):
            continue
        sizes = list(tensor.shape)
        for number, placement in enumerate(placements):
            dim = getattr(placement, "dim", None)
            if not placement.is_shard() or dim is None:
                continue
            whole, ranks = sizes[dim], int(mesh.size(number))
            part = -(-whole // ranks)
            sizes[dim] = part
            if part:
                ends = (whole // part, -(-whole // part))
                found |= {(mesh.mesh_dim_names[number], end) for end in ends if 0 < end < ranks}
    return tuple(sorted(found))
