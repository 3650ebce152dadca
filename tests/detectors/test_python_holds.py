"""What is said of memory that Python itself keeps."""

from __future__ import annotations

import pytest

from memguard.detectors.python_holds import ReferenceCycle
from memguard.facts import FreedByCollector
from memguard.findings import Severity
from tests.detectors.evidence import AT, MIB, judge


@pytest.mark.parametrize(("enabled", "severity"), [(True, Severity.WARNING), (False, Severity.CRITICAL)])
def test_circles_found_together_are_told_at_once(enabled: bool, severity: Severity) -> None:
    """With their number and size; without the collector they pile up for good."""
    fact = FreedByCollector(
        **AT, graphs=0, circles=12, bytes=3 * MIB, cycle="Node.parent <- Node", collector_enabled=enabled
    )
    (finding,) = judge(ReferenceCycle(), fact)
    assert finding.severity is severity and finding.bytes == 3 * MIB
    assert finding.message.startswith(
        "12 circles of references with 3.00 MiB were freed by the garbage collector only:"
    )
