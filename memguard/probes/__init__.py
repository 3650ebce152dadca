"""What must look at live objects: graphs, storages, gradients, cycles, and who holds them."""

from __future__ import annotations

from memguard.probes.called import CalledProbe
from memguard.probes.cycles.collected_graphs import CyclesProbe
from memguard.probes.cycles.collected_memory import CollectedMemoryProbe
from memguard.probes.cycles.collected_outputs import CollectedModelsProbe, CollectedOutputsProbe
from memguard.probes.graphs.contexts import ContextsProbe
from memguard.probes.graphs.derivatives import DerivativesProbe
from memguard.probes.graphs.evaluation import EvaluationProbe
from memguard.probes.graphs.inner_frozen import InnerFrozenProbe
from memguard.probes.graphs.manual_steps import ManualStepsProbe
from memguard.probes.graphs.marks import MarksProbe
from memguard.probes.graphs.micro_batches import MicroBatchesProbe
from memguard.probes.graphs.old_graphs import GraphsProbe
from memguard.probes.graphs.stem import StemProbe
from memguard.probes.graphs.threaded_evaluation import ThreadedEvaluationProbe
from memguard.probes.graphs.training_passes import TrainingPassesProbe
from memguard.probes.graphs.unowned import UnownedGradientsProbe
from memguard.probes.host.cache_calls import CacheCallsProbe
from memguard.probes.host.generators import GeneratorsProbe
from memguard.probes.host.input_sizes import InputSizesProbe
from memguard.probes.host.pinned import PinnedProbe
from memguard.probes.host.processes import CompilationsProbe, OtherDevicesProbe
from memguard.probes.host.workers import WorkersProbe
from memguard.probes.interface import Probe, Watch
from memguard.probes.kept.exceptions import ExceptionsProbe
from memguard.probes.kept.growing_names import GrowingNamesProbe
from memguard.probes.kept.kept_results import KeptResultsProbe
from memguard.probes.kept.micro_outputs import MicroOutputsProbe
from memguard.probes.kept.model_series import ModelSeriesProbe, ReplacedModelsProbe
from memguard.probes.kept.outputs import OutputsProbe
from memguard.probes.kept.scans import ScansProbe
from memguard.probes.panel import Probes
from memguard.probes.peaks.by_hand import ByHandProbe
from memguard.probes.peaks.gradients import GradientsProbe
from memguard.probes.peaks.history import HistoryProbe
from memguard.probes.peaks.late_locals import LateLocalsProbe
from memguard.probes.peaks.locals import LocalsProbe
from memguard.probes.peaks.logits import LogitsProbe
from memguard.probes.peaks.precision import AutocastProbe
from memguard.probes.peaks.rebinds import RebindsProbe
from memguard.probes.peaks.remade import RemadeProbe
from memguard.probes.recurring_peaks import RecurringPeaksProbe
from memguard.probes.rising_floor import RisingFloorProbe

PROBES: tuple[type[Probe], ...] = (
    MarksProbe,
    StemProbe,
    ManualStepsProbe,
    CyclesProbe,
    CollectedModelsProbe,
    ModelSeriesProbe,
    ReplacedModelsProbe,
    CollectedOutputsProbe,
    CollectedMemoryProbe,
    GraphsProbe,
    MicroBatchesProbe,
    MicroOutputsProbe,
    EvaluationProbe,
    DerivativesProbe,
    ThreadedEvaluationProbe,
    TrainingPassesProbe,
    UnownedGradientsProbe,
    InnerFrozenProbe,
    OutputsProbe,
    GradientsProbe,
    ByHandProbe,
    ContextsProbe,
    ExceptionsProbe,
    CacheCallsProbe,
    LogitsProbe,
    AutocastProbe,
    GeneratorsProbe,
    ScansProbe,
    KeptResultsProbe,
    GrowingNamesProbe,
    LocalsProbe,
    LateLocalsProbe,
    CompilationsProbe,
    OtherDevicesProbe,
    PinnedProbe,
    RisingFloorProbe,
    RecurringPeaksProbe,
    HistoryProbe,
    RebindsProbe,
    RemadeProbe,
    WorkersProbe,
    InputSizesProbe,
    CalledProbe,
)
"""Every probe, in the order in which events reach them."""

__all__ = ["PROBES", "Probe", "Probes", "Watch"]
