"""What the user's own loggers get: a few numbers of the batches since the last time, and the findings.

A front door asks for them when its framework logs anyway; a record costs a comparison of five numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, final

from memguard.recorder import Recorder
from memguard.records.findings import Finding, Severity
from memguard.records.stats import BatchRecord, Stage
from memguard.sinks.findings_table import as_markdown
from memguard.sinks.window import Window

FINDINGS = "memory/findings"
_LEFT_OUT = (Stage.SANITY, Stage.OTHER)
"""Of which the user's loggers hear nothing: few numbers."""
_TEXTS: dict[str, Callable[[Finding], str]] = {
    "rule": lambda one: f"{one.code} {one.name}",
    "severity": lambda one: one.severity.value,
    "message": lambda one: one.message,
    "advice": lambda one: one.advice,
    "where": lambda one: f"{one.file}:{one.line}" if one.file else "",
    "batch": lambda one: str(one.batch),
}
"""Columns of the table that W&B shows."""


@final
class Scalars:
    """Gathers the highest figures of each stage until they are asked for."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._windows: dict[Stage, Window] = {}
        self._records(recorder.records)
        recorder.listeners.append(self._records)

    def take(self) -> dict[str, float]:
        """What came since the last call, under the names of TensorBoard's curves; findings are counted from the start.

        ``memory/findings_total`` counts those that are a warning or worse; ``memory/findings/MG101`` tells how often
        that one was seen.
        """
        findings = self._recorder.findings.values()  # works out the records that still wait
        scalars: dict[str, float] = {}
        for stage, window in self._windows.items():
            if window.count:
                scalars.update(window.scalars(stage))
                window.clear()
        scalars["memory/findings_total"] = float(sum(finding.severity is not Severity.INFO for finding in findings))
        for finding in findings:
            name = f"{FINDINGS}/{finding.code}"
            scalars[name] = scalars.get(name, 0.0) + finding.count
        return scalars

    def _records(self, records: Iterable[BatchRecord]) -> None:
        for record in records:
            if record.stage in _LEFT_OUT:
                continue
            window = self._windows.get(record.stage)
            if window is None:
                window = self._windows[record.stage] = Window()
            window.take((record,))


@final
class LightningLoggers:
    """Logs to the loggers of a Lightning Trainer, where and when it does so itself; TensorBoard has its own sink.

    Each logger is called as Lightning calls it: ``log_metrics`` with the Trainer's own step. Texts go to those that
    take them: ``log_text`` of Lightning's WandbLogger, an artifact in MLflow.

    Args:
        recorder: Whose records and findings are logged; a failing logger is left alone from then on.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._scalars = Scalars(recorder)
        self._step: int | None = None
        self._texts: dict[str, list[Any]] = {}

    def batch_end(self, trainer: Any) -> None:
        """A training batch is over; logs if Lightning is about to, once for each of its steps."""
        if trainer._logger_connector.should_update_logs and _step(trainer) != self._step:  # checked in lightning 2.6
            self._step = _step(trainer)
            self.log(trainer)

    def log(self, trainer: Any, *, trained: bool = False) -> None:
        """Logs a point now; once training is over, at its last step."""
        step, scalars = max(_step(trainer) - trained, 0), self._scalars.take()
        findings = list(self._recorder.findings.values())
        for logger in trainer.loggers:
            name = type(logger).__name__
            if name == "TensorBoardLogger" or self._recorder.is_off(name):
                continue
            with self._recorder.part(name):
                logger.log_metrics(dict(scalars), step=step)
                told = [(*finding.cause, finding.severity) for finding in findings]
                if self._texts.get(name, []) != told:
                    self._texts[name] = told
                    _log_text(logger, "findings", findings, as_markdown(findings), step)

    def out_of_memory(self, trainer: Any, report: str) -> None:
        """The run ran out of memory; the report is Markdown."""
        for logger in trainer.loggers:
            name = type(logger).__name__
            if name != "TensorBoardLogger" and not self._recorder.is_off(name):
                with self._recorder.part(name):
                    _log_text(logger, "out_of_memory", [], report, _step(trainer))


def _step(trainer: Any) -> int:
    """The step that Lightning itself logs with; checked in lightning 2.6."""
    return int(trainer.fit_loop.epoch_loop._batches_that_stepped)


def _log_text(logger: Any, name: str, findings: list[Finding], markdown: str, step: int) -> None:
    if hasattr(logger, "log_text"):
        columns, rows = ["report"], [[markdown]]
        if findings:
            columns = list(_TEXTS)
            rows = [[_TEXTS[column](one) for column in columns] for one in findings]
        logger.log_text(key=f"memory/{name}", columns=columns, data=rows, step=step)
    elif type(logger).__name__ == "MLFlowLogger":
        logger.experiment.log_text(logger.run_id, markdown, f"memguard/{name}.md")
