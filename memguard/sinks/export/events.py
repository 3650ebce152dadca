"""Findings and out-of-memory reports as events: a text, a severity and attributes. No SDK, no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from memguard.clocks import time_ns
from memguard.records.findings import Finding

_LONGEST = 20_000
"""Characters of a report that are sent."""


@final
@dataclass(frozen=True, slots=True)
class Event:
    """One log record."""

    name: str
    severity: str
    """``info``, ``warning``, ``critical``, or ``fatal`` for a run that ran out of memory."""
    body: str
    attributes: dict[str, str | int | float]
    time_ns: int


def of_finding(finding: Finding) -> Event:
    """A finding; places under the semantic conventions' names."""
    told: dict[str, str | int | float | None] = {
        "memguard.finding.code": finding.code,
        "memguard.finding.name": finding.name,
        "memguard.finding.advice": finding.advice or None,
        "memguard.finding.holder": finding.holder,
        "memguard.finding.bytes": finding.bytes,
        "memguard.finding.bytes_per_batch": finding.bytes_per_batch,
        "memguard.finding.count": finding.count,
        "memguard.stage": finding.stage.value,
        "memguard.phase": finding.phase,
        "memguard.batch": finding.batch,
        "memguard.epoch": finding.epoch,
        "code.file.path": finding.file,
        "code.line.number": finding.line,
        "code.function.name": finding.function,
    }
    known = {name: value for name, value in told.items() if value is not None}
    return Event("memguard.finding", finding.severity.value, finding.text, known, time_ns())


def of_out_of_memory(report: str, batch: int) -> Event:
    """A post-mortem; its body is the report as Markdown."""
    body = report if len(report) <= _LONGEST else report[:_LONGEST] + " ..."
    attributes: dict[str, str | int | float] = {"memguard.batch": batch, "exception.type": "torch.OutOfMemoryError"}
    return Event("memguard.out_of_memory", "fatal", body, attributes, time_ns())
