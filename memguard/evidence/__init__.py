"""Collectors of evidence from live objects: graphs, storages, gradients, cycles, and what holds them."""

from __future__ import annotations

from memguard.evidence.cycles.collected_graphs import CyclesProbe
from memguard.evidence.cycles.collected_memory import CollectedMemoryProbe, CollectedOutputsProbe
from memguard.evidence.dispatcher import ProbeDispatcher
from memguard.evidence.graphs.evaluation import EvaluationProbe
from memguard.evidence.graphs.frozen_parts import InnerFrozenProbe
from memguard.evidence.graphs.function_contexts import ContextsProbe
from memguard.evidence.graphs.graph_marks import ManualStepsProbe, MarksProbe, StemProbe
from memguard.evidence.graphs.micro_batches import MicroBatchesProbe, MicroOutputsProbe
from memguard.evidence.graphs.old_graphs import GraphsProbe
from memguard.evidence.graphs.summed_losses import SummedLossesProbe
from memguard.evidence.graphs.unused_gradients import DroppedGradientsProbe, UntakenGradientsProbe
from memguard.evidence.graphs.unused_passes import DerivativesProbe, TrainingPassesProbe
from memguard.evidence.host.cache_calls import CacheCallsProbe
from memguard.evidence.host.datasets import GeneratorsProbe
from memguard.evidence.host.input_sizes import CalledProbe, InputSizesProbe
from memguard.evidence.host.processes import CompilationsProbe, OtherDevicesProbe, PinnedProbe, SentProbe
from memguard.evidence.host.workers import WorkersProbe
from memguard.evidence.interface import Probe, ProbeContext
from memguard.evidence.kept.exceptions import ExceptionsProbe
from memguard.evidence.kept.gathered_weights import GatheredWeightsProbe
from memguard.evidence.kept.growing_names import GrowingNamesProbe
from memguard.evidence.kept.outputs import OutputsProbe
from memguard.evidence.kept.scans import ScansProbe
from memguard.evidence.kept.unread import UnreadProbe
from memguard.evidence.peaks.contents import ContentsProbe
from memguard.evidence.peaks.gradients import GradientsProbe
from memguard.evidence.peaks.history import HistoryProbe
from memguard.evidence.peaks.locals import LocalsProbe
from memguard.evidence.peaks.logits import LogitsProbe
from memguard.evidence.peaks.periodic_reallocation import ModelSeriesProbe, RemadeProbe
from memguard.evidence.peaks.precision import AutocastProbe
from memguard.evidence.peaks.rebinds_in_history import RebindsProbe
from memguard.evidence.sampling_budget import RisingFloorProbe

PROBES: tuple[type[Probe], ...] = (
    MarksProbe,
    StemProbe,
    ManualStepsProbe,
    CyclesProbe,
    ModelSeriesProbe,
    CollectedOutputsProbe,
    CollectedMemoryProbe,
    GraphsProbe,
    MicroBatchesProbe,
    MicroOutputsProbe,
    SummedLossesProbe,
    EvaluationProbe,
    DerivativesProbe,
    TrainingPassesProbe,
    UntakenGradientsProbe,
    DroppedGradientsProbe,
    InnerFrozenProbe,
    OutputsProbe,
    GatheredWeightsProbe,
    UnreadProbe,
    GradientsProbe,
    ContextsProbe,
    ExceptionsProbe,
    CacheCallsProbe,
    LogitsProbe,
    AutocastProbe,
    GeneratorsProbe,
    ScansProbe,
    GrowingNamesProbe,
    LocalsProbe,
    CompilationsProbe,
    OtherDevicesProbe,
    PinnedProbe,
    SentProbe,
    RisingFloorProbe,
    HistoryProbe,
    RebindsProbe,
    RemadeProbe,
    WorkersProbe,
    InputSizesProbe,
    CalledProbe,
    ContentsProbe,
)
"""Every probe, in the order in which events reach them."""

__all__ = ["PROBES", "Probe", "ProbeContext", "ProbeDispatcher"]
