"""A run's summary as a notebook shows it below a cell."""

from __future__ import annotations

from memguard.records.summary import Summary
from memguard.report.page import render_template
from memguard.report.text import cost_text, headline, peak_texts, phase_rows, sorted_findings, stage_rows, why_texts


def summary_html(summary: Summary) -> str:
    """The verdict, why, the table of stages, the findings, what it cost."""
    return render_template(
        "summary",
        verdict=headline(summary),
        lines=[*(f"{word}: {text}" for word, text in why_texts(summary)), *peak_texts(summary), cost_text(summary)],
        tables=[stage_rows(summary), phase_rows(summary)],
        findings=sorted_findings(summary),
    )
