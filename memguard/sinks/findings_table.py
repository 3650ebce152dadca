"""Findings as a table in Markdown, for whatever shows that: TensorBoard, an artifact of MLflow."""

from __future__ import annotations

from memguard.findings import Finding


def as_markdown(findings: list[Finding]) -> str:
    """One row a finding."""
    rows = ["| rule | severity | what | where | first batch | times |", "|---|---|---|---|---|---|"]
    for finding in findings:
        where = f"`{finding.file}:{finding.line}`" if finding.file else "-"
        what = f"{finding.message} **{finding.advice}**".replace("|", "\\|").replace("\n", " ")
        rows.append(
            f"| {finding.code} {finding.name} | {finding.severity.value} | {what} | {where} "
            f"| {finding.batch} | {finding.count} |"
        )
    return "\n".join(rows)
