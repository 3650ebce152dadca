"""A claim: what a rule says about some memory, with the words for it, before the arbiter weighs it."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from memguard.records.facts.fact import Place
from memguard.records.findings import Finding, Severity


class Evidence(enum.Enum):
    """What kind of memory a claim is about; the value is for messages of tests alone."""

    GROWTH = "growth"
    """More of it comes with every batch, or was seen to be kept over batches."""
    HELD = "held"
    """It stays as it is."""
    PEAK = "peak"
    """It is there for a moment, at the peak."""
    OTHER = "other"
    """Counters of the allocator, the device, the ranks, the host; memguard's own acts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim(Finding):
    """One rule's word on one cause, as of the newest evidence: a finding that is not judged yet.

    Its `severity` is what the rule's evidence is worth by itself, before the arbiter weighs it against the device; its
    `bytes` are what it explains of the memory that is allocated, its `count` the graphs, tensors or copies.
    """

    evidence: Evidence = Evidence.OTHER
    batches_left: int | None = None
    """Batches to come that bring more, where known; None asks the run."""
    is_limited: bool = False
    """Whether the share it takes makes it no worse: it holds no more than there is room for (a replay memory, an
    average), or it may be wanted where it is."""
    ends: bool = False
    """Whether it is let go where the pass over the data ends."""
    is_final: bool = False
    """Whether its numbers were counted when the run was over."""
    names: tuple[str, ...] = ()
    """Other names, like ``step() 'loss'``, whose memory is the same."""
    explains: tuple[tuple[str, str | None, int | None, str | None], ...] = field(default=(), compare=False)
    """Causes of other claims that it speaks for as well; the arbiter says so."""

    @property
    def place(self) -> Place:
        """Where it is."""
        return Place(file=self.file, line=self.line, function=self.function, holder=self.holder)

    @property
    def each_bytes(self) -> float | None:
        """Bytes of one of what it counts; None where either is unknown."""
        return self.bytes / self.count if self.bytes and self.count > 1 else None

    @classmethod
    def of(cls, finding: Finding) -> Claim:
        """The claim behind a finding that was judged elsewhere: on another device of the process."""
        return cls(**{name: getattr(finding, name) for name in Finding.__dataclass_fields__})

    def finding(self, severity: Severity) -> Finding:
        """The finding that the arbiter makes of it."""
        fields = {name: getattr(self, name) for name in Finding.__dataclass_fields__}
        return Finding(**{**fields, "severity": severity})
