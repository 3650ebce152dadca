"""A traced step as plain data: every allocation and free in order, and where each came from. Knows no torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple, final


class Kind(IntEnum):
    """What one event of a trace is."""

    ALLOC = 0
    FREE = 1
    GEMM = 2
    """A matrix product through cuBLAS; `block` is 1 on the autograd engine's thread. Its workspace depends on torch."""
    EPILOGUE_GEMM = 3
    """A matrix product with a bias through cuBLASLt."""
    RECORD_STREAM = 4
    EMPTY_CACHE = 5
    STEP = 6
    """A step begins; `nbytes` is its number from 0. The end of the last one is the end of the trace."""
    CONVOLUTION = 7
    """A convolution; `nbytes` is the most that its workspace may be."""
    ATTENTION = 8
    """A backward of attention that cuDNN may run; `nbytes` is what the other kernel takes for itself."""
    WORKSPACE = 9
    """What a convolution probably takes for itself; its own event follows."""
    OTHER_WORKSPACE = 10
    """What it takes by the rules for GPUs of another kind, which a range covers too."""


class Event(NamedTuple):
    """One event; `site` indexes `Trace.sites`, `stream` is 0 for the default stream."""

    kind: int
    block: int
    nbytes: int
    stream: int
    site: int


class Site(NamedTuple):
    """Where an allocation was made: the user's line, the module and the phase of the step."""

    file: str | None
    line: int | None
    function: str | None
    module: str
    """Name in the model and class, like ``layers.0 (Linear)``; of the model itself the class; "" outside it."""
    phase: str
    """"setup", "forward", "backward" or "optimizer"."""


COMMUNICATION = "communication buffers"
OWNERS = (
    "parameters",
    "buffers",
    "gradients",
    "optimizer states",
    "gathered parameters",
    COMMUNICATION,
    "activations",
    "inputs",
    "workspaces",
    "temporaries",
)
"""What a block of memory is for, in the order in which it is reported."""


class Mesh(NamedTuple):
    """How the ranks of a training are arranged: by the largest device mesh that the code makes."""

    names: tuple[str, ...]
    shape: tuple[int, ...]
    ranks: tuple[int, ...]
    """In the order of their coordinates, the last changing fastest."""

    def rank_at(self, coordinates: Sequence[int]) -> int:
        """The rank at a place of the mesh."""
        index = 0
        for size, coordinate in zip(self.shape, coordinates, strict=True):
            index = index * size + coordinate
        return self.ranks[index]


class Recorded(NamedTuple):
    """Where the events of a trace were recorded, if it is of real steps."""

    device: str
    """The GPU, as PyTorch names it."""
    alloc_conf: str
    """The allocator's settings there."""
    falling: bool = False
    """Whether the driver there handed out ever lower addresses."""
    scaled: bool = False
    """Whether the sizes are those of another batch than was measured."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """The memory of several training steps, independent of the GPU's size and of the allocator's settings."""

    events: list[Event]
    sites: list[Site]
    owners: list[str]
    """Owner of each block, by its number."""
    steps: int
    compute_capability: tuple[int, int]
    torch_version: str
    operators: int
    notes: tuple[str, ...] = field(default=())
    """What the trace had to assume, for people."""
    recurrent_bytes: int = 0
    """What recurrent layers that cuDNN would run keep for one backward."""
    batch: int | None = None
    """The batch size at which it was traced, when the caller named one."""
    in_bf16: bool = False
    """Whether every forward ran under bf16 autocast."""
    compiled: bool = False
    """Whether parts of the step were compiled by torch.compile."""
    mesh: Mesh | None = None
    """None where the code makes none."""
    cuts: tuple[tuple[str, int], ...] = ()
    """Dimension of the mesh, and the coordinate from which on the shard of some parameter is smaller."""
    groups: tuple[int, ...] = ()
    """The number of ranks of each process group that communicated, if it has more than one."""
    recorded: Recorded | None = None
    """None where the step ran on fake tensors."""

    @property
    def blocks(self) -> int:
        """Number of blocks that the trace allocates."""
        return len(self.owners)
