"""The verdict of a post-mortem: a cause with its evidence, and the changes that it leads to."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Any

from memguard.postmortem.evidence import Spike
from memguard.postmortem.scene import HeldException, HeldModel, KeptTensors, OptimizerUse, Scene
from memguard.records.facts import NOWHERE, Place
from memguard.records.findings import Finding

SUBSTANTIAL = 0.1
"""Share of the allocated bytes below which nothing is called the cause."""


class Cause(enum.Enum):
    """Why a request found no memory."""

    SIZE = "size"
    LEAK = "leak"
    FRAGMENTATION = "fragmentation"
    PRIVATE_POOLS = "private-pools"
    LONG_BATCH = "long-batch"
    VALIDATION_GRAPH = "validation-graph"
    OPTIMIZER_STATE = "optimizer-state"
    SEVERAL_MODELS = "several-models"
    KEPT_EXCEPTION = "kept-exception"
    OTHER_PROCESS = "other-process"
    HOST_MEMORY = "host-memory"
    ELSEWHERE = "elsewhere"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A cause with its evidence."""

    cause: Cause
    text: str
    """One or two sentences."""
    bytes: int = 0
    """What would be free without it."""
    place: Place = NOWHERE
    finding: Finding | None = None
    hoard: KeptTensors | None = None
    models: tuple[HeldModel, ...] = ()
    exception: HeldException | None = None
    optimizer: OptimizerUse | None = None
    spike: Spike | None = None
    evidence: dict[str, Any] = field(default_factory=dict)

    @property
    def rule(self) -> str | None:
        """The rule that would have told of graphs which something was seen to keep, had there been time."""
        if self.cause is not Cause.LEAK or self.hoard is None or self.finding is not None:
            return None
        if self.hoard.feeds == "carried":
            return "MG102"
        return "MG101" if self.hoard.graph else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """One change."""

    kind: str
    """What is to be done, in a word: ``"batch"``, ``"length"``, ``"no_grad"``, ``"detach"``, ``"bound"``."""
    text: str
    place: Place = NOWHERE
    """Where, and to what, as far as that is known."""
    gain_bytes: int | None = None
    """What it saves at the failing moment; None where that cannot be said."""
    value: int | None = None
    """The number it proposes, where it proposes one: a batch size, a length, rows of a buffer."""
    instead_of: int | None = None
    """The number that it replaces."""
    replayed: bool = False
    """Whether a replay through the simulated allocator showed that it fits."""


def matters(scene: Scene, nbytes: int) -> bool:
    """Whether so many bytes would have been enough for the request, and are no small part of what is allocated."""
    allocated = scene.request.allocated_bytes or 0
    return nbytes >= scene.request.shortage_bytes and nbytes >= SUBSTANTIAL * allocated


def strongest_finding(scene: Scene, codes: tuple[str, ...], besides: tuple[str | None, ...] = ()) -> Finding | None:
    """The finding that names most, of some rules and besides some holders."""
    found = [finding for finding in scene.findings if finding.code in codes]
    found = [finding for finding in found if finding.holder is None or finding.holder not in besides]
    return max(found, key=lambda each: (each.file is not None, each.bytes or 0), default=None)
