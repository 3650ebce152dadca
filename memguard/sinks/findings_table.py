"""Findings as a table in Markdown, for whatever shows that: TensorBoard, an artifact of MLflow."""

from __future__ import annotations

from memguard.records.findings import Finding
from memguard.text.places import place_text
from memguard.text.terminal import one_line


def as_markdown(findings: list[Finding]) -> str:
    """One row a finding."""
    rows = ["| rule | severity | what | where | first batch | count |", "|---|---|---|---|---|---|"]
    for finding in findings:
        where = _cell(f"`{place_text(finding.file, finding.line, whole=True)}`") if finding.file else "-"
        what = _cell(f"{finding.text} **{finding.advice}**")
        rows.append(
            f"| {finding.code} {finding.name} | {finding.severity.value} | {what} | {where} "
            f"| {finding.batch} | {finding.count} |"
        )
    return "\n".join(rows)


def _cell(text: str) -> str:
    return one_line(text).replace("|", "\\|")
