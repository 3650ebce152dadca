"""Facts: what evidence collectors saw in live objects, as plain data for the rules."""

from memguard.records.facts.device import (
    CompiledGraphs,
    EmptyCacheCalls,
    OtherDevice,
    RankPeaks,
    RanOutOfMemory,
    StreamHeld,
    UnexplainedGrowth,
)
from memguard.records.facts.fact import NOWHERE, Fact, Place
from memguard.records.facts.graphs import (
    FunctionContextHolds,
    GradientsWithGraph,
    MicroBatchGraphs,
    MicroBatchOutputs,
    RetainedGraphs,
    SavedAfterBackward,
    UnusedGraphs,
)
from memguard.records.facts.in_json import KINDS, from_json, to_json
from memguard.records.facts.on_host import KeptOnHost, PinnedCacheGrows, WorkerObjects
from memguard.records.facts.python_objects import ExceptionHolds, FreedByCollector
from memguard.records.facts.storages import (
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
from memguard.records.facts.training import (
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
