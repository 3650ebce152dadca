"""Further devices of a process whose model spans several: a recording and rules for each.

Each has a recorder of its own beside the session's, which is told the same boundaries. What probes see of live objects
is told once, by the session.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, final

import torch
from torch import nn

from memguard.backends.choose import choose_backend
from memguard.recorder import Recorder
from memguard.records.claims import Claim
from memguard.records.findings import Finding
from memguard.records.stats import BatchRecord, Run, Stage
from memguard.rules import ALL_RULES, make_rules
from memguard.rules.interface import Rule
from memguard.rules.selection import codes_of
from memguard.sinks.code_lines import CodeLines
from memguard.sinks.interface import Sink
from memguard.torch_objects.module_parts import buffers_of, parameters_of

if TYPE_CHECKING:
    from memguard.integrations.session import Session

LOOKS = (2, 8)
"""Batches at whose start the models' devices are looked at again: some move a part when they first use it."""
KINDS = ("cuda", "xpu")


@final
class FurtherDevices:
    """Records the devices of a session's models besides the one that the session guards.

    Args:
        session: The session, which holds this in turn.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._recorders: dict[str, Recorder] = {}
        self._described: dict[str, Any] = {}
        self._stages: list[Stage] = []
        self._batches = 0
        self.listens = True
        """Whether there are further devices, or may be: else events need not be told."""

    def __len__(self) -> int:
        return len(self._recorders)

    def __iter__(self) -> Iterator[Recorder]:
        return iter(self._recorders.values())

    def open(self, described: dict[str, Any]) -> None:
        """The run begins.

        Args:
            described: What the session's own recording says of the run.
        """
        self._described = described

    def find(self, models: Iterable[nn.Module]) -> None:
        """Begins to record the devices of these models that are not recorded yet."""
        own = self._session.backend.device
        kind = own.partition(":")[0]
        if kind not in KINDS or not self._described:
            return
        for index in sorted(indices_of(models, kind)):
            device = f"{kind}:{index}"
            if device not in (own, kind) and device not in self._recorders:
                self._recorders[device] = self._begin(device)
                self.listens = True

    def _begin(self, device: str) -> Recorder:
        session, options = self._session, self._session.options
        run = session.recorder.run
        detectors = make_rules(rules=options.rules, ignore=options.left_out)
        recorder = Recorder(
            choose_backend(device, peaks=options.peaks),
            Run(device=device, rank=run.rank, world_size=run.world_size),
            logdir=session.logdir if session.recorder.recording is not None else None,
            detectors=[_OnDevice(each, device) for each in detectors if type(each).observe is not Rule.observe],
            sinks=[_ToSession(session.recorder)],
            silenced=codes_of(ALL_RULES, options.left_out),
        )
        if options.source:
            recorder.add_sink(CodeLines(recorder.line))  # its findings are few: their code is read at the end
        recorder.open({**self._described, "lane": len(self._recorders) + 1})
        for stage in self._stages:
            recorder.stage_start(stage)
        return recorder

    # Events, as the session's own recorder hears them

    def stage_start(self, stage: Stage, epoch: int | None) -> None:
        """A stage begins."""
        self._stages.append(stage)
        for recorder in self:
            recorder.stage_start(stage, epoch=epoch)

    def stage_end(self, stage: Stage) -> None:
        """A stage ends."""
        if stage in self._stages:
            while self._stages.pop() is not stage:
                pass
        for recorder in self:
            recorder.stage_end(stage)

    def batch_start(self, index: int | None) -> None:
        """A batch begins."""
        self._batches += 1
        if self._batches in LOOKS:
            with self._session.recorder.part("further devices"):
                self.find(self._session.watch.models)
        self.listens = bool(self._recorders) or self._batches < max(LOOKS)
        for recorder in self._recorders.values():
            recorder.batch_start(index)

    def batch_end(self) -> None:
        """The open batch ends."""
        for recorder in self._recorders.values():
            recorder.batch_end()

    def optimizer_step(self) -> None:
        """An optimizer made a step."""
        for recorder in self:
            recorder.optimizer_steps += 1

    def close(self, reason: str) -> None:
        """The run is over; what the further devices cost is charged to the session's recorder."""
        recorders, self._recorders = self._recorders, {}
        for recorder in recorders.values():
            seconds = recorder.spent
            summary = recorder.close(reason)
            self._session.recorder.spent += seconds
            self._session.recorder.summary.devices.append(summary)


def indices_of(models: Iterable[nn.Module], kind: str) -> set[int]:
    """The devices of a kind that hold parameters or buffers of models, or copies of them (nn.DataParallel)."""
    found: set[int] = set()
    for model in models:
        found.update(
            tensor.device.index or 0
            for tensors in (parameters_of(model), buffers_of(model))
            for tensor in tensors
            if tensor.device.type == kind
        )
        if isinstance(model, nn.DataParallel):
            found.update(torch.device(kind, each).index for each in model.device_ids)
    return found


@final
class _ToSession(Sink):
    """Hands findings on to the session's recorder, and so to its sinks, its summary and its recording."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def finding(self, finding: Finding) -> None:
        self._recorder.add(Claim.of(finding))

    def close(self) -> None:
        pass


@final
class _OnDevice(Rule):
    """A rule that names the device in what it finds."""

    code: ClassVar[str] = ""
    name: ClassVar[str] = ""

    def __init__(self, rule: Rule, device: str) -> None:
        self._rule, self._device = rule, device
        self.code, self.name, self.hears = rule.code, rule.name, rule.hears  # type: ignore[misc]

    def observe(self, record: BatchRecord, run: Run) -> Iterable[Claim]:
        return self._named(self._rule.observe(record, run))

    def finish(self, run: Run) -> Iterable[Claim]:
        return self._named(self._rule.finish(run))

    def _named(self, claims: Iterable[Claim]) -> Iterable[Claim]:
        for each in claims:
            yield replace(each, message=f"on {self._device}: {each.message}", holder=each.holder or self._device)
