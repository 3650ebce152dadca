"""A worker of Ray Train: its rank, the name of its run, and the run's storage path, as Ray reports them.

Ray is asked only where the program has imported it; what it does not answer comes from the environment, as elsewhere.
"""

from __future__ import annotations

import contextlib
import sys
from typing import Any

from memguard.launch import Launch, plain_name
from memguard.text.urls import check_url


def ray_worker() -> Launch | None:
    """This process's place in a run of Ray Train; None where it is no worker of one."""
    with contextlib.suppress(Exception):  # Ray raises where this is no worker, and other versions what they like
        context = _context()
        if context is not None:
            name = plain_name(str(context.get_experiment_name() or "run"))
            return Launch(
                rank=int(context.get_world_rank()),
                world_size=int(context.get_world_size()),
                local_rank=int(context.get_local_rank()),
                node=str(int(context.get_node_rank())),
                run=f"ray-{name}",
            )
    return None


def ray_storage() -> str | None:
    """The run's directory below ``RunConfig(storage_path=...)``, a path or a URL; None where there is none such."""
    with contextlib.suppress(Exception):
        context = _context()
        if context is None:
            return None
        storage = context.get_storage()
        path, kind = str(storage.experiment_fs_path), str(storage.storage_filesystem.type_name)
        if kind == "local":
            return path
        url = f"{kind.removeprefix('py::').removeprefix('fsspec+')}://{path}"
        check_url(url)
        return url
    return None


def _context() -> Any:
    """Ray's answers about this worker; None where Ray Train was not imported."""
    train = sys.modules.get("ray.train")
    return None if train is None else train.get_context()
