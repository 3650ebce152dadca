"""What concludes: one rule each from records and facts to findings, judging a live run and a saved one alike."""

from __future__ import annotations

from collections.abc import Iterable

from memguard.detectors.allocator_state import AllocatorThrash, Fragmentation, StreamHeld
from memguard.detectors.cache_emptied import EmptyCacheInLoop, GraphPoolsGrow
from memguard.detectors.device_share import ForeignMemory, RankImbalance, WrongDevice
from memguard.detectors.graph_buffers import CreateGraphCycle, FunctionContext, RetainGraph
from memguard.detectors.growth import SteadyGrowth
from memguard.detectors.host_growth import HostGrowth
from memguard.detectors.interface import Detector
from memguard.detectors.kept_storage import OutputsAccumulate, ViewPinsStorage
from memguard.detectors.lifetimes import LocalsAlive, PreviousBatchAlive, RebindDoubles
from memguard.detectors.micro_batches import MicroBatchGraph
from memguard.detectors.outlooks import LongestBatch, LowHeadroom, OptimizerState
from memguard.detectors.pinned_growth import PinnedGrowth
from memguard.detectors.precision import AutocastCache, LogitsUpcast
from memguard.detectors.python_holds import ExceptionKeeps, ReferenceCycle
from memguard.detectors.retained_graphs import CarriedState, RetainedGraph
from memguard.detectors.select import choose
from memguard.detectors.shared_memory import SharedMemory
from memguard.detectors.unused_graphs import EvalGraph, FrozenModelGraph
from memguard.detectors.weights import CheckpointOnDevice, ModelCopy, StaleGradient
from memguard.detectors.worker_growth import WorkerGrowth

DETECTORS: tuple[type[Detector], ...] = (
    RetainedGraph,
    CarriedState,
    RetainGraph,
    CreateGraphCycle,
    FunctionContext,
    MicroBatchGraph,
    EvalGraph,
    FrozenModelGraph,
    OutputsAccumulate,
    ViewPinsStorage,
    PreviousBatchAlive,
    LocalsAlive,
    RebindDoubles,
    ReferenceCycle,
    ExceptionKeeps,
    ModelCopy,
    StaleGradient,
    LogitsUpcast,
    AutocastCache,
    CheckpointOnDevice,
    Fragmentation,
    AllocatorThrash,
    EmptyCacheInLoop,
    StreamHeld,
    GraphPoolsGrow,
    SteadyGrowth,
    OptimizerState,
    LongestBatch,
    LowHeadroom,
    ForeignMemory,
    WrongDevice,
    RankImbalance,
    HostGrowth,
    WorkerGrowth,
    PinnedGrowth,
    SharedMemory,
)
"""Every rule, sorted by code. A new rule is one file and one line here."""


def make_detectors(*, rules: Iterable[str] | None = None, ignore: Iterable[str] = ()) -> list[Detector]:
    """New detectors for one run.

    Args:
        rules: Codes or names to select; None selects all.
        ignore: Codes or names to leave out.

    Raises:
        ValueError: A rule of that code or name does not exist; the text names the valid ones.
    """
    return [kind() for kind in choose(DETECTORS, rules, ignore)]


__all__ = ["DETECTORS", "Detector", "make_detectors"]
