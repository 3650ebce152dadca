"""Headroom means one thing wherever it is shown."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import memguard
from memguard.report.html_details import details, summary
from memguard.report.html_index import RowIndex
from memguard.report.html_lines import LineIndex
from memguard.report.runs import load_run
from memguard.report.text import render
from memguard.text.units import MIB, format_bytes
from tests.report.reading import reader


@pytest.mark.parametrize("asks", [8 * MIB, 100 * MIB])
def test_one_definition(tmp_path: Path, asks: int) -> None:
    """Text, JSON and the page's numbers agree: capacity less reserved, 0 where memory ran out, though caught."""
    with memguard.watch(device="virtual:64MiB", logdir=str(tmp_path), progress=False) as guard:
        for batch in guard.batches(range(4)):
            kept = torch.empty(3 * MIB, dtype=torch.int32)  # 12 MiB, a segment of its own
            if batch == 2:
                try:
                    torch.empty(asks // 4, dtype=torch.int32)
                except torch.OutOfMemoryError:
                    pass
            del kept
    run = load_run([str(tmp_path)])
    (path,) = run.paths
    told = run.to_json()
    rows = RowIndex(reader(path), path.name)
    rows.refresh(path.stat().st_size)
    lines = LineIndex(reader(path.with_suffix(".jsonl")), path.name)
    lines.refresh(path.with_suffix(".jsonl").stat().st_size)
    reserved = told["peak"]["reserved_bytes"]
    assert 12 * MIB <= reserved < 64 * MIB
    expected = 0 if asks > 64 * MIB else 64 * MIB - reserved
    assert f"; headroom {format_bytes(expected)}." in render(run.summary)
    assert told["headroom_bytes"] == told["ranks"][0]["headroom_bytes"] == expected
    assert details(rows, lines, [])["headroom_bytes"] == summary(rows, lines)["headroom_bytes"] == expected
    assert told["unallocated_bytes"] == 64 * MIB - told["peak"]["allocated_bytes"]


def test_unknown_is_none(tmp_path: Path) -> None:
    """A device that tells no reserved memory has no headroom, neither 0."""
    with memguard.watch(device="cpu", logdir=str(tmp_path), progress=False) as guard:
        list(guard.batches(range(2)))
    told = load_run([str(tmp_path)]).to_json()
    assert told["headroom_bytes"] is None and told["unallocated_bytes"] is None
