"""Doubles of memguard's own interfaces, for tests that need no torch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from memguard.backends.interface import Backend
from memguard.records.claims import Claim
from memguard.records.facts import Fact
from memguard.records.findings import Finding, Severity
from memguard.records.stats import BatchRecord, MemoryStats, Run, SlowStats
from memguard.rules.interface import Rule
from memguard.sinks.interface import Sink

MIB = 1024**2


class ScriptedBackend(Backend):
    """Answers `boundary` from a list of numbers: (allocated, peak) in MiB, the last one for ever."""

    device, name, total_bytes = "scripted:0", "Scripted", 1024 * MIB  # type: ignore[assignment]

    def __init__(self, boundaries: Iterable[tuple[int, int]] = ((0, 0),)) -> None:
        self._boundaries = list(boundaries)
        self.retries = 0
        self.emptied = 0
        self.installed = 0

    def read(self) -> MemoryStats:
        allocated, peak = self._boundaries[0]
        return MemoryStats(
            allocated_bytes=allocated * MIB,
            allocated_peak_bytes=peak * MIB,
            reserved_bytes=2 * peak * MIB,
            reserved_peak_bytes=2 * peak * MIB,
            num_alloc_retries=self.retries,
            num_ooms=0,
        )

    def boundary(self) -> MemoryStats:
        stats = self.read()
        if len(self._boundaries) > 1:
            self._boundaries.pop(0)
        return stats

    def read_slow(self) -> SlowStats:
        return SlowStats()

    def install(self) -> None:
        self.installed += 1

    def remove(self) -> None:
        self.installed -= 1

    def empty_cache(self) -> int:
        self.emptied += 1
        return 5 * MIB


class ScriptedDetector(Rule):
    """Calls a function with each record."""

    code, name = "MG999", "scripted"

    def __init__(self, judge: Callable[[BatchRecord, Run], Iterable[Claim]]) -> None:
        self._judge = judge

    def observe(self, record: BatchRecord, run: Run) -> Iterable[Claim]:
        return self._judge(record, run)

    def learn(self, fact: Fact, run: Run) -> Iterable[Claim]:
        return [claim(batch=fact.batch, message="learned")]


class ListSink(Sink):
    """Keeps what it is given."""

    def __init__(self) -> None:
        self.told: list[BatchRecord] = []
        self.findings: list[Finding] = []
        self.closed = 0

    def records(self, records: Sequence[BatchRecord], run: Run) -> None:
        self.told.extend(records)

    def finding(self, finding: Finding) -> None:
        self.findings.append(finding)

    def close(self) -> None:
        self.closed += 1


def finding(**changes: object) -> Finding:
    """A finding with some fields changed."""
    told = claim(**changes)
    return told.finding(told.severity)


def claim(**changes: object) -> Claim:
    """A claim with some fields changed."""
    fields = {
        "code": "MG999",
        "name": "scripted",
        "severity": Severity.WARNING,
        "message": "it leaks",
        "advice": "stop it",
    }
    return Claim(**{**fields, **changes})  # type: ignore[arg-type]
