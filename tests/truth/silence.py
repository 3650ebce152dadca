"""Whether a run was called nothing to worry about although its memory rose for good, by its records alone."""

from __future__ import annotations

import numpy as np

from memguard.recording.reader import Recording
from memguard.records.stats import Stage
from memguard.report.summaries import summarize
from memguard.report.text import render

SHARE, WARM = 0.1, 16
CALM = "nothing to worry about"


def silence_in(recording: Recording) -> str | None:
    """What the summary of a recording keeps quiet about, in words; None where it is true or not calm.

    Args:
        recording: Of a run that has ended.
    """
    total = recording.session.get("device_total_bytes")
    end = recording.column("allocated_end_bytes")[recording.stage_mask(Stage.TRAIN)]
    if len(end) <= 2 * WARM or np.isnan(end).any() or not total:
        return None
    begin, last = end[: 2 * WARM].max(), end[-WARM:].min()  # the lowest at the end, the highest of the beginning
    if last - begin <= SHARE * total and not recording.of_kind("oom"):
        return None
    if CALM not in render(summarize(recording)):
        return None
    return f"called {CALM}, though allocated memory went from {begin:.0f} to {last:.0f} bytes"
