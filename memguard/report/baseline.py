"""Memory baselines: what runs and tests used when somebody last agreed to it, in a JSON file kept in git. No torch.

The file holds peaks by stage and the findings, under a name for each run or test, sorted, without paths and times: on
a virtual device the same program writes the same bytes on every machine.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, final

from memguard.errors import MemGuardError
from memguard.records.findings import Finding, Severity
from memguard.records.stats import Stage
from memguard.records.summary import Peak, StageSummary, Summary

VERSION = 1
RUN = "run"
"""The name under which `memguard report --write-baseline` keeps a run."""


@final
class BaselineFile:
    """One file of baselines.

    Args:
        path: The file; it need not exist before something is written.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def names(self) -> list[str]:
        """What it has baselines for, in order.

        Raises:
            MemGuardError: It cannot be read, or is no file of baselines.
        """
        return sorted(self._read())

    def get(self, name: str = RUN) -> Summary | None:
        """The baseline of one run or test as a summary; None where there is none.

        Raises:
            MemGuardError: As `names`.
        """
        data = self._read().get(name)
        try:
            return None if data is None else _summary(data)
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            raise MemGuardError(f"{self.path} has a broken baseline {name!r}: {error}") from None

    def put(self, summary: Summary, name: str = RUN) -> None:
        """Writes the baseline of one run or test; those under other names stay.

        Raises:
            MemGuardError: As `names`, or it cannot be written.
        """
        all_of_them = self._read() if self.path.exists() else {}
        all_of_them[name] = _data(summary)
        text = json.dumps({"version": VERSION, "baselines": all_of_them}, indent=2, sort_keys=True) + "\n"
        beside = self.path.with_name(f"{self.path.name}.{os.getpid()}.tmp")
        try:
            beside.write_text(text)
            os.replace(beside, self.path)  # a reader sees the old file or the new one, never half of it
        except OSError as error:
            raise MemGuardError(f"{self.path} cannot be written: {error.strerror}") from None

    def _read(self) -> dict[str, Any]:
        try:
            data = json.loads(self.path.read_text())
        except OSError as error:
            raise MemGuardError(f"{self.path} cannot be read: {error.strerror}") from None
        except ValueError:
            data = None
        if not isinstance(data, dict) or not isinstance(data.get("baselines"), dict):
            raise MemGuardError(f"{self.path} is not a file of memory baselines; --write-baseline writes one")
        if data.get("version") != VERSION:
            raise MemGuardError(
                f"{self.path} has baselines of version {data.get('version')!r}, this memguard reads {VERSION}"
            )
        return dict(data["baselines"])


def _data(summary: Summary) -> dict[str, Any]:
    stages = {
        stage.value: {"allocated_bytes": entry.peak.allocated_bytes, "reserved_bytes": entry.peak.reserved_bytes}
        for stage, entry in summary.in_order.items()
    }
    findings = sorted(
        {(each.code, each.name, each.severity.value, each.holder or "", each.line or 0) for each in summary.findings}
    )
    return {
        "device": summary.device,
        "peaks": stages,
        "reserved_peak_bytes": summary.reserved_peak_bytes,
        "findings": [
            {"code": code, "name": name, "severity": severity, "holder": holder or None, "line": line or None}
            for code, name, severity, holder, line in findings
        ],
    }


def _summary(data: dict[str, Any]) -> Summary:
    summary = Summary(device=str(data["device"]), reserved_peak_bytes=_count(data["reserved_peak_bytes"]))
    for name, peak in data["peaks"].items():
        stage = Stage(name)
        summary.stages[stage] = StageSummary(
            peak=Peak(
                allocated_bytes=_count(peak["allocated_bytes"]),
                reserved_bytes=_count(peak["reserved_bytes"]),
                stage=stage,
            )
        )
    for each in data["findings"]:
        holder = f"`{each['holder']}`" if each["holder"] else "no holder"
        summary.findings.append(
            Finding(
                code=str(each["code"]),
                name=str(each["name"]),
                severity=Severity(each["severity"]),
                message=f"{holder}, line {each['line'] or 'unknown'}",
                advice="",
                holder=each["holder"],
                line=each["line"],
            )
        )
    return summary


def _count(value: Any) -> int | None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 0):
        return value
    raise ValueError(f"{value!r} is no number of bytes")
