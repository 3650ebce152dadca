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
_PLACES = (
    ("RANK", "WORLD_SIZE", "LOCAL_RANK"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
)
"""Rank, number of processes, rank on the node: of torchrun and whoever does as it does, of srun, of mpirun. Of srun the
number that it alone sets: a batch script has SLURM_NTASKS and is one process."""
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
    """How often the elastic launcher began anew before this process, or the batch system requeued its job."""
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
    names = next((names for names in _PLACES if _number(environment, names[1]) is not None), _PLACES[0])
    rank = _number(environment, names[0]) or 0 if rank is None else rank
    world_size = _number(environment, names[1]) or 1 if world_size is None else world_size
    if world_size < 2:
        return Launch(rank=rank, world_size=world_size)
    node = next((environment[name] for name in _NODES if environment.get(name, "").isdigit()), None)
    return Launch(
        rank=rank,
        world_size=world_size,
        local_rank=_number(environment, names[2]),
        node=node if node is not None else plain_name(socket.gethostname().partition(".")[0]) or None,
        restart=_number(environment, "TORCHELASTIC_RESTART_COUNT") or _number(environment, "SLURM_RESTART_COUNT") or 0,
        run=_run(environment),
    )


def _run(environment: Mapping[str, str]) -> str:
    """What all processes of a run have in common, and other runs do not."""
    elastic = environment.get("TORCHELASTIC_RUN_ID", "")
    if elastic and elastic != "none":  # "none": torchrun's static rendezvous over several nodes
        return f"torchrun-{elastic[:8] if _UUID.fullmatch(elastic) else plain_name(elastic)}"
    array, task = environment.get("SLURM_ARRAY_JOB_ID", ""), environment.get("SLURM_ARRAY_TASK_ID", "")
    if array and task:
        step = environment.get("SLURM_STEP_ID", "")
        return plain_name(f"job-{array}_{task}" + (f"-{step}" if step.isdigit() else ""))
    for name in _JOBS:
        if environment.get(name):
            step = environment.get("SLURM_STEP_ID", "") if name == "SLURM_JOB_ID" else ""
            return plain_name(f"job-{environment[name]}" + (f"-{step}" if step.isdigit() else ""))
    if environment.get("MASTER_ADDR") and environment.get("MASTER_PORT"):
        return plain_name(f"ranks-{environment['MASTER_ADDR']}-{environment['MASTER_PORT']}")
    return f"ranks-{os.getppid()}"


def plain_name(text: str) -> str:
    """A text made fit for a file's name."""
    return re.sub(r"[^A-Za-z0-9_.]+", "-", text).strip("-.")[:64]


def _number(environment: Mapping[str, str], name: str) -> int | None:
    value = environment.get(name, "")
    return int(value) if value.isdigit() else None
