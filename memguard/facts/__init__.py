"""What probes saw of live objects, as plain data: the evidence that detectors judge beside the records."""

from memguard.facts.device import (
    CompiledGraphs,
    EmptyCacheCalls,
    OtherDevice,
    RankPeaks,
    RanOutOfMemory,
    StreamHeld,
    UnexplainedGrowth,
)
from memguard.facts.fact import NOWHERE, Fact, Place
from memguard.facts.graphs import (
    FunctionContextHolds,
    GradientsWithGraph,
    MicroBatchGraphs,
    MicroBatchOutputs,
    RetainedGraphs,
    SavedAfterBackward,
    UnusedGraphs,
)
from memguard.facts.in_json import KINDS, from_json, to_json
from memguard.facts.on_host import KeptOnHost, PinnedCacheGrows, WorkerObjects
from memguard.facts.python_objects import ExceptionHolds, FreedByCollector
from memguard.facts.storages import (
    CheckpointKept,
    GrowingParameters,
    KeptOutputs,
    KeptResults,
    LargeLocals,
    ModelCopies,
    PreviousOutputsAlive,
    ReboundTensor,
    SurvivingAllocations,
    ViewsPinStorage,
)
from memguard.facts.training import (
    AutocastOpen,
    InputSize,
    LargeLogits,
    ModelCalled,
    OptimizerStateAhead,
    StaleGradients,
)

__all__ = [
    "KINDS",
    "NOWHERE",
    "AutocastOpen",
    "CheckpointKept",
    "CompiledGraphs",
    "EmptyCacheCalls",
    "ExceptionHolds",
    "Fact",
    "FreedByCollector",
    "FunctionContextHolds",
    "GradientsWithGraph",
    "GrowingParameters",
    "InputSize",
    "KeptOnHost",
    "KeptOutputs",
    "KeptResults",
    "LargeLocals",
    "LargeLogits",
    "MicroBatchGraphs",
    "MicroBatchOutputs",
    "ModelCalled",
    "ModelCopies",
    "OptimizerStateAhead",
    "OtherDevice",
    "PinnedCacheGrows",
    "Place",
    "PreviousOutputsAlive",
    "RanOutOfMemory",
    "RankPeaks",
    "ReboundTensor",
    "RetainedGraphs",
    "SavedAfterBackward",
    "StaleGradients",
    "StreamHeld",
    "SurvivingAllocations",
    "UnexplainedGrowth",
    "UnusedGraphs",
    "ViewsPinStorage",
    "WorkerObjects",
    "from_json",
    "to_json",
]
