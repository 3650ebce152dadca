"""What must look at live objects: graphs, storages, gradients, cycles, and who holds them."""

from __future__ import annotations

from memguard.probes.cache_calls import CacheCallsProbe
from memguard.probes.collected_memory import CollectedMemoryProbe
from memguard.probes.collected_models import CollectedModelsProbe
from memguard.probes.collected_outputs import CollectedOutputsProbe
from memguard.probes.contexts import ContextsProbe
from memguard.probes.cycles import CyclesProbe
from memguard.probes.derivatives import DerivativesProbe
from memguard.probes.evaluation import EvaluationProbe
from memguard.probes.exceptions import ExceptionsProbe
from memguard.probes.generators import GeneratorsProbe
from memguard.probes.gradients import GradientsProbe
from memguard.probes.graphs import GraphsProbe
from memguard.probes.history import HistoryProbe
from memguard.probes.inner_frozen import InnerFrozenProbe
from memguard.probes.input_sizes import InputSizesProbe
from memguard.probes.interface import Probe, Watch
from memguard.probes.kept_results import KeptResultsProbe
from memguard.probes.locals import LocalsProbe
from memguard.probes.logits import LogitsProbe
from memguard.probes.manual_steps import ManualStepsProbe
from memguard.probes.marks import MarksProbe
from memguard.probes.model_series import ModelSeriesProbe
from memguard.probes.outputs import OutputsProbe
from memguard.probes.panel import Probes
from memguard.probes.pinned import PinnedProbe
from memguard.probes.precision import AutocastProbe
from memguard.probes.processes import CompilationsProbe, OtherDevicesProbe
from memguard.probes.rebinds import RebindsProbe
from memguard.probes.remade import RemadeProbe
from memguard.probes.replaced_models import ReplacedModelsProbe
from memguard.probes.rising_floor import RisingFloorProbe
from memguard.probes.scans import ScansProbe
from memguard.probes.stem import StemProbe
from memguard.probes.threaded_evaluation import ThreadedEvaluationProbe
from memguard.probes.training_passes import TrainingPassesProbe
from memguard.probes.unowned import UnownedGradientsProbe
from memguard.probes.workers import WorkersProbe

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
    EvaluationProbe,
    DerivativesProbe,
    ThreadedEvaluationProbe,
    TrainingPassesProbe,
    UnownedGradientsProbe,
    InnerFrozenProbe,
    OutputsProbe,
    GradientsProbe,
    ContextsProbe,
    ExceptionsProbe,
    CacheCallsProbe,
    LogitsProbe,
    AutocastProbe,
    GeneratorsProbe,
    ScansProbe,
    KeptResultsProbe,
    LocalsProbe,
    CompilationsProbe,
    OtherDevicesProbe,
    PinnedProbe,
    RisingFloorProbe,
    HistoryProbe,
    RebindsProbe,
    RemadeProbe,
    WorkersProbe,
    InputSizesProbe,
)
"""Every probe, in the order in which events reach them."""

__all__ = ["PROBES", "Probe", "Probes", "Watch"]
