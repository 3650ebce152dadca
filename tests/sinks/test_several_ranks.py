from __future__ import annotations

from pathlib import Path

from memguard.recording.writer import RecordingWriter
from memguard.records.findings import Finding, Severity
from memguard.records.stats import BatchRecord, Run, Stage
from memguard.sinks.interface import Sink
from memguard.sinks.several_ranks import PATIENCE_SECONDS, OnlyHere
from tests.fakes import finding


class Heard(Sink):
    """Keeps what it is given."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []
        self.closed = False

    def finding(self, finding: Finding) -> None:
        self.findings.append(finding)

    def close(self) -> None:
        self.closed = True


def test_what_rank_0_says_the_others_do_not_repeat(tmp_path: Path) -> None:
    """A rank waits until rank 0 had the time to find the same, and then says only what is its own."""
    first = RecordingWriter(tmp_path, {"rank": 0})
    now = [0.0]
    heard = Heard()
    here = OnlyHere(heard, tmp_path, 2, clock=lambda: now[0])
    shared, own = finding(code="MG201", line=3), finding(code="MG101", line=9)
    batch, run = BatchRecord(batch=1, stage=Stage.TRAIN, time=0, seconds=0), Run(device="x", rank=2, world_size=4)
    here.finding(shared)
    here.finding(own)
    first.line("finding", shared.to_json())
    here.records([batch], run)
    assert heard.findings == []
    now[0] += PATIENCE_SECONDS + 1
    here.records([batch], run)
    assert [each.code for each in heard.findings] == ["MG101"]
    here.close()
    first.close()
    assert heard.closed and len(heard.findings) == 1


def test_what_is_critical_is_said_at_once_and_the_rest_at_the_end(tmp_path: Path) -> None:
    """Nothing is lost where the run ends early or no other recording can be read."""
    heard = Heard()
    here = OnlyHere(heard, tmp_path / "nowhere", 1)
    here.finding(finding(code="MG501", severity=Severity.CRITICAL))
    assert [each.code for each in heard.findings] == ["MG501"]
    here.finding(finding(code="MG301"))
    here.close()
    assert [each.code for each in heard.findings] == ["MG501", "MG301"]
