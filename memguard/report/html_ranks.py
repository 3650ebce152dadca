"""One run over its ranks: the highest and the lowest peak in each stretch of batches, and whose it was. No torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from memguard.report.html_rows import Rows


def over_ranks(windows: Mapping[int, Rows], buckets: int) -> dict[str, list[Any]]:
    """The band over ranks, as JSON values.

    Args:
        windows: The rows of one window, by rank; every rank's maxima are among them.
        buckets: Width of the chart in pixels.

    Returns:
        ``batch`` (of the highest peak in each stretch), ``high``, ``low`` (the highest peaks of the highest and of
        the lowest rank there) and ``worst`` (the rank of the highest), all of one length.
    """
    windows = {rank: rows for rank, rows in sorted(windows.items()) if len(rows)}
    result: dict[str, list[Any]] = {"batch": [], "high": [], "low": [], "worst": []}
    if not windows:
        return result
    begin = min(int(rows["batch"][0]) for rows in windows.values())
    end = max(int(rows["batch"][-1]) for rows in windows.values())
    count = max(1, min(buckets, end - begin + 1))
    peaks = np.full((len(windows), count), -1, dtype=np.int64)
    where = np.zeros((len(windows), count), dtype=np.int64)
    for number, rows in enumerate(windows.values()):
        batches, values = rows["batch"], rows["allocated_peak_bytes"]
        bucket = np.clip((batches - begin) * count // (end - begin + 1), 0, count - 1)
        order = np.lexsort((values, bucket))
        highest = order[np.append(np.diff(bucket[order]) > 0, True)]
        peaks[number, bucket[highest]] = values[highest]
        where[number, bucket[highest]] = batches[highest]
    ranks = list(windows)
    worst = peaks.argmax(axis=0)
    for at in range(count):
        known = peaks[:, at][peaks[:, at] >= 0]
        if len(known):
            result["batch"].append(int(where[worst[at], at]))
            result["high"].append(int(known.max()))
            result["low"].append(int(known.min()))
            result["worst"].append(ranks[int(worst[at])])
    return result
