"""Rank, node and run of this process, read from the launcher's environment. No torch.

torchrun's variables come first (torch's elastic agent and ``accelerate launch`` set the same ones), then those of
batch systems.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

_JOBS = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID")
_NODES = ("GROUP_RANK", "NODE_RANK", "SLURM_NODEID")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """One process's place among the processes of a run."""

    rank: int = 0
    world_size: int = 1
    local_rank: int | None = None
    """Position among the processes of this node."""
    node: str | None = None
    """The node's number in the run, else its host name; None for a process alone."""
    restart: int = 0
    """How often the elastic launcher began anew before this process."""
    run: str | None = None
    """A directory's name that every process of the run arrives at by itself; None for a process alone."""


def read_launch(
    environment: Mapping[str, str] = os.environ, *, rank: int | None = None, world_size: int | None = None
) -> Launch:
    """This process's place.

    Args:
        environment: The process's variables.
        rank: As torch.distributed or the host framework tells, where one does; it counts more than RANK.
        world_size: Likewise; it counts more than WORLD_SIZE.
    """
    rank = _number(environment, "RANK") or 0 if rank is None else rank
    world_size = _number(environment, "WORLD_SIZE") or 1 if world_size is None else world_size
    if world_size < 2:
        return Launch(rank=rank, world_size=world_size)
    node = next((environment[name] for name in _NODES if environment.get(name, "").isdigit()), None)
    return Launch(
        rank=rank,
        world_size=world_size,
        local_rank=_number(environment, "LOCAL_RANK"),
        node=node if node is not None else _plain(socket.gethostname().partition(".")[0]) or None,
        restart=_number(environment, "TORCHELASTIC_RESTART_COUNT") or 0,
        run=_run(environment),
    )


def _run(environment: Mapping[str, str]) -> str:
    """What all processes of a run have in common, and other runs do not."""
    elastic = environment.get("TORCHELASTIC_RUN_ID", "")
    if elastic and elastic != "none":  # "none": torchrun's static rendezvous over several nodes
        return f"torchrun-{elastic[:8] if _UUID.fullmatch(elastic) else _plain(elastic)}"
    for name in _JOBS:
        if environment.get(name):
            step = environment.get("SLURM_STEP_ID", "") if name == "SLURM_JOB_ID" else ""
            return _plain(f"job-{environment[name]}" + (f"-{step}" if step.isdigit() else ""))
    if environment.get("MASTER_ADDR") and environment.get("MASTER_PORT"):
        return _plain(f"ranks-{environment['MASTER_ADDR']}-{environment['MASTER_PORT']}")
    return f"ranks-{os.getppid()}"


def _plain(text: str) -> str:
    """Fit for a file's name."""
    return re.sub(r"[^A-Za-z0-9_.]+", "-", text).strip("-.")[:64]


def _number(environment: Mapping[str, str], name: str) -> int | None:
    value = environment.get(name, "")
    return int(value) if value.isdigit() else None
