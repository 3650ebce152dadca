"""What a trace depends on, beside the step itself. Knows no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from memguard.forecast.layouts import Layout


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Number of steps, and the GPU to imitate."""

    steps: int = 3
    compute_capability: tuple[int, int] = (9, 0)
    total_bytes: int = 80 * 2**30
    multiprocessors: int = 108
    threads_per_multiprocessor: int = 2048
    name: str = "GPU"
    cudnn_workspaces: bool = True
    """Whether its cuDNN takes workspaces; that of a GPU which only imitates one takes none."""
    batch: int | None = None
    """The batch size of the step as it is written."""
    traced_batch: int | None = None
    """Another one to trace it with."""
    torch_version: tuple[int, int] = (2, 15)
    """The PyTorch to imitate: some kernels take other memory from one version to the next."""
    change: str | None = None
    """Name of a change to make."""
    eager: bool = False
    """Whether torch.compile leaves everything as it is."""
    rank: int = 0
    """Which process of the training to trace."""
    processes: int | None = None
    """Processes on each node; None: the step is a single process."""
    nodes: int = 1
    layout: Layout = ()
    """Sizes of the meshes that the code makes; (): as it is written."""

    @property
    def local_rank(self) -> int:
        """The number of its GPU on its node."""
        return self.rank % self.processes if self.processes else 0
