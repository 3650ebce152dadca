"""From a scene to a post-mortem."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from memguard.postmortem.advice import advise
from memguard.postmortem.causes import find_cause
from memguard.postmortem.scene import Replayed, Request, Scene, TopLine, TopTensor
from memguard.postmortem.verdict import Advice, Cause
from memguard.records.facts import NOWHERE, Place, RanOutOfMemory
from memguard.records.phases import OpenPhase
from memguard.records.stats import Stage


@dataclass(frozen=True, slots=True, kw_only=True)
class PostMortem:
    """One out-of-memory error, explained."""

    id: str
    """Like ``"oom-rank00000-batch123"``; the folder of its files."""
    device: str
    rank: int
    batch: int
    stage: Stage
    epoch: int | None
    message: str
    """PyTorch's own text."""
    cause: Cause
    why: str
    """The cause in words, with its evidence."""
    place: Place = NOWHERE
    """Where the cause lies in the user's code, as far as it is known."""
    site: Place = NOWHERE
    """The line that asked."""
    phase: str | None = None
    """What PyTorch was about: "forward", "backward" or "optimizer step"."""
    in_phase: OpenPhase | None = None
    """The phase of the program's own that was under way (`memguard.phase`)."""
    request: Request = field(default_factory=Request)
    owners: dict[str, int] = field(default_factory=dict)
    lines: tuple[TopLine, ...] = ()
    lines_allocated: bool = False
    """Whether the lines are those that allocated; else functions stood there whose variables hold it."""
    tensors: tuple[TopTensor, ...] = ()
    shapes: list[Any] | None = None
    advice: tuple[Advice, ...] = ()
    replays: tuple[Replayed, ...] = ()
    findings: tuple[str, ...] = ()
    """Codes of what had been found before."""
    snapshot: str | None = None
    """Name of the snapshot's file, beside the report."""
    bytes: int = 0
    """What would be free without the cause."""
    optimizer: str | None = None
    """Class of the optimizer whose state is the cause."""
    rule: str | None = None
    """The rule whose kind of leak it is, where nothing had told of it."""
    caught: bool = False
    """Whether the program caught the error and went on."""
    seconds: float = 0.0
    """What the examination took."""

    def fact(self) -> RanOutOfMemory:
        """What the rules may conclude from it."""
        optimizer = self.optimizer if self.cause is Cause.OPTIMIZER_STATE else None
        return RanOutOfMemory(
            batch=self.batch,
            stage=self.stage,
            place=self.place if self.place.file else self.site,
            cause=self.cause.value,
            why=self.why,
            advice=self.advice[0].text if self.advice else "make the batch smaller.",
            bytes=self.bytes or None,
            holder=optimizer,
            caught=self.caught,
            rule=self.rule,
        )

    def to_json(self) -> dict[str, Any]:
        """The post-mortem as the recording, report.json and the Memory tab have it."""
        return {
            "id": self.id,
            "device": self.device,
            "rank": self.rank,
            "batch": self.batch,
            "stage": self.stage.value,
            "epoch": self.epoch,
            "message": self.message,
            "cause_kind": self.cause.value,
            "cause": self.why,
            "site": asdict(self.site),
            "place": asdict(self.place),
            "phase": self.phase,
            "in_phase": asdict(self.in_phase) if self.in_phase is not None else None,
            "requested_bytes": self.request.requested_bytes,
            "request": asdict(self.request),
            "owners": self.owners,
            "lines": [[line.file or "", line.line or 0, line.function or "", line.bytes] for line in self.lines],
            "lines_allocated": self.lines_allocated,
            "tensors": [asdict(tensor) for tensor in self.tensors],
            "input_shapes": self.shapes,
            "advice": [asdict(advice) for advice in self.advice],
            "replay": [asdict(replayed) for replayed in self.replays],
            "findings": list(self.findings),
            "snapshot": self.snapshot,
            "caught": self.caught,
            "seconds": round(self.seconds, 3),
        }


def conclude(scene: Scene, *, name: str | None = None, seconds: float = 0.0) -> PostMortem:
    """The post-mortem of a scene.

    Args:
        scene: What was seen.
        name: The post-mortem's id; None makes it from rank and batch.
        seconds: What the look took.
    """
    verdict = find_cause(scene)
    objects = scene.objects
    return PostMortem(
        id=name or f"oom-rank{scene.rank:05d}-batch{scene.batch}",
        device=scene.device,
        rank=scene.rank,
        batch=scene.batch,
        stage=scene.stage,
        epoch=scene.epoch,
        message=scene.message,
        cause=verdict.cause,
        why=verdict.text,
        place=verdict.place,
        site=objects.site,
        phase=objects.phase,
        in_phase=scene.in_phase,
        request=scene.request,
        owners=dict(objects.owners),
        lines=objects.lines,
        lines_allocated=objects.lines_allocated,
        tensors=objects.tensors,
        shapes=scene.shapes,
        advice=advise(scene, verdict),
        replays=scene.replays,
        findings=tuple(sorted({finding.code for finding in scene.findings})),
        bytes=verdict.bytes,
        optimizer=verdict.optimizer.name if verdict.optimizer is not None else None,
        rule=verdict.rule,
        seconds=seconds,
    )
