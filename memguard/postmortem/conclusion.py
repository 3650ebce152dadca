"""From a scene to a post-mortem."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from memguard.postmortem.advice import advise
from memguard.postmortem.causes import find_cause
from memguard.postmortem.scene import Scene
from memguard.postmortem.verdict import Advice, Cause, Verdict
from memguard.records.facts import RanOutOfMemory


@dataclass(frozen=True, slots=True, kw_only=True)
class PostMortem:
    """One out-of-memory error, explained."""

    id: str
    """Like ``"oom-rank00000-batch123"``; the folder of its files."""
    scene: Scene
    verdict: Verdict
    advice: tuple[Advice, ...] = ()
    snapshot: str | None = None
    """Name of the snapshot's file, beside the report."""
    caught: bool = False
    """Whether the program caught the error and went on."""
    seconds: float = 0.0
    """What the examination took."""

    @property
    def findings(self) -> tuple[str, ...]:
        """Codes of what had been found before."""
        return tuple(sorted({finding.code for finding in self.scene.findings}))

    def fact(self) -> RanOutOfMemory:
        """What the rules may conclude from it."""
        scene, verdict = self.scene, self.verdict
        optimizer = verdict.optimizer if verdict.cause is Cause.OPTIMIZER_STATE else None
        return RanOutOfMemory(
            batch=scene.batch,
            stage=scene.stage,
            place=verdict.place if verdict.place.file else scene.objects.site,
            cause=verdict.cause.value,
            why=verdict.text,
            advice=self.advice[0].text if self.advice else "make the batch smaller.",
            bytes=verdict.bytes or None,
            holder=optimizer.name if optimizer is not None else None,
            caught=self.caught,
            rule=verdict.rule,
        )

    def to_json(self) -> dict[str, Any]:
        """The post-mortem as the recording, report.json and the Memory tab have it."""
        scene, objects, verdict = self.scene, self.scene.objects, self.verdict
        return {
            "id": self.id,
            "device": scene.device,
            "rank": scene.rank,
            "batch": scene.batch,
            "stage": scene.stage.value,
            "epoch": scene.epoch,
            "message": scene.message,
            "cause_kind": verdict.cause.value,
            "cause": verdict.text,
            "site": asdict(objects.site),
            "place": asdict(verdict.place),
            "phase": objects.phase,
            "in_phase": asdict(scene.in_phase) if scene.in_phase is not None else None,
            "requested_bytes": scene.request.requested_bytes,
            "request": asdict(scene.request),
            "owners": dict(objects.owners),
            "lines": [[line.file or "", line.line or 0, line.function or "", line.bytes] for line in objects.lines],
            "lines_allocated": objects.lines_allocated,
            "tensors": [asdict(tensor) for tensor in objects.tensors],
            "input_shapes": scene.shapes,
            "advice": [asdict(advice) for advice in self.advice],
            "replay": [asdict(replayed) for replayed in scene.replays],
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
    return PostMortem(
        id=name or f"oom-rank{scene.rank:05d}-batch{scene.batch}",
        scene=scene,
        verdict=verdict,
        advice=advise(scene, verdict),
        seconds=seconds,
    )
