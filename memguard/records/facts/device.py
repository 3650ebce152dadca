"""Facts about the allocator, the device and its ranks."""

from __future__ import annotations

from dataclasses import dataclass

from memguard.records.facts.fact import Fact


@dataclass(frozen=True, slots=True, kw_only=True)
class EmptyCacheCalls(Fact):
    """Calls of empty_cache so far, with the line that makes most of them."""

    calls: int
    batches: int
    """Since the first call; forwards of a roll-out count as batches too."""
    optimizer_steps: int | None = None
    """Since the first call, where most calls come right after training; None elsewhere."""
    seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledGraphs(Fact):
    """Graphs compiled so far, and what their private pools reserve."""

    graphs: int
    pools: int = 0
    pool_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherDevice(Fact):
    """Memory of this process on a device that is not its own."""

    device: str
    own_device: str
    bytes: int
    model: bool = False
    """Whether the model itself is there, as where nobody called ``set_device``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RanOutOfMemory(Fact):
    """An allocation found no memory, and its post-mortem says why."""

    cause: str
    """`memguard.postmortem.Cause`, by its value."""
    why: str
    """The cause in words, with its evidence."""
    advice: str
    """What helps most."""
    bytes: int | None = None
    """What would be free without it."""
    holder: str | None = None
    """The optimizer's class, where its state is the cause."""
    caught: bool = False
    """Whether the program caught the error and went on."""
    rule: str | None = None
    """The code of the rule whose kind of leak it is, where nothing had told of it before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SentToProcesses(Fact):
    """Tensors were sent to other processes through CUDA IPC and are gone here: a receiver may keep their memory."""

    tensors: int
    """At least so many: torch forgets some."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnexplainedGrowth(Fact):
    """At the end of a run: by how much the memory kept rose in training, of which the claims explain less than half."""

    from_bytes: int
    to_bytes: int
    explained_bytes: int
    fell: bool = False
    """Whether it was ever lower than before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPeaks(Fact):
    """The peaks of the ranks of one run."""

    peaks: tuple[tuple[int, int], ...]
    """(rank, peak of allocated bytes)."""
