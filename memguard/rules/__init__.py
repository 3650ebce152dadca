"""The rules: pure functions from records and facts to claims, for a live run and for a recording."""

from __future__ import annotations

from collections.abc import Iterable

from memguard.rules.allocator_state import AllocatorThrash, Fragmentation, StreamHeld
from memguard.rules.cache_emptied import EmptyCacheInLoop, GraphPoolsGrow
from memguard.rules.capacity import LongestBatch, LowHeadroom, OptimizerState
from memguard.rules.cycles_and_exceptions import ExceptionKeeps, ReferenceCycle
from memguard.rules.device_share import ForeignMemory, RankImbalance, WrongDevice
from memguard.rules.graph_buffers import CreateGraphCycle, FunctionContext, RetainGraph
from memguard.rules.growth import SteadyGrowth
from memguard.rules.host_growth import HostGrowth
from memguard.rules.host_memory import PinnedGrowth, SharedMemory, WorkerGrowth
from memguard.rules.interface import Rule
from memguard.rules.kept_storage import OutputsAccumulate, ViewPinsStorage
from memguard.rules.lifetimes import LocalsAlive, PreviousBatchAlive, RebindDoubles, UnreadInTraining
from memguard.rules.precision import AutocastCache, LogitsUpcast
from memguard.rules.retained_graphs import CarriedState, MicroBatchGraph, RetainedGraph
from memguard.rules.selection import choose
from memguard.rules.unused_graphs import EvalGraph, FrozenModelGraph
from memguard.rules.weights import CheckpointOnDevice, ModelCopy, StaleGradient

ALL_RULES: tuple[type[Rule], ...] = (
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
    UnreadInTraining,
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


def make_rules(*, rules: Iterable[str] | None = None, ignore: Iterable[str] = ()) -> list[Rule]:
    """New detectors for one run.

    Args:
        rules: Codes or names to select; None selects all.
        ignore: Codes or names to leave out.

    Raises:
        ValueError: A rule of that code or name does not exist; the text names the valid ones.
    """
    return [kind() for kind in choose(ALL_RULES, rules, ignore)]


__all__ = ["ALL_RULES", "Rule", "make_rules"]
