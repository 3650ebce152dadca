"""A memory snapshot as a map of segments and blocks, for the page to draw. No torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from memguard.allocator.analysis import analyse
from memguard.allocator.analysis.device import DeviceAnalysis
from memguard.allocator.analysis.lines import Line, Lines
from memguard.allocator.analysis.trial import EXPANDABLE_CONF, try_expandable
from memguard.allocator.snapshot import ACTIVE, PENDING, Snapshot
from memguard.allocator.snapshot_reader import parse_snapshot, without_collector
from memguard.errors import SnapshotError
from memguard.report.html_history import moment_of, snapshot_history

_MOST_BLOCKS = 200_000
_MOST_LINES = 400
_EXPLAINED = 20 << 20
"""Bytes of a file up to which its history is replayed for advice: that takes seconds."""
_STATES = {ACTIVE: 0, PENDING: 1}
_FREE = 2
_REST = Line(None, None, "(many other lines)")


def snapshot_map(data: bytes, event: int | None = None) -> dict[str, Any]:
    """The segments and blocks of a snapshot, with the line that allocated each block, as JSON values.

    Args:
        data: A pickle of ``torch.cuda.memory._dump_snapshot``; it is read as plain data, never unpickled.
        event: Of the history of the first device that has one: the map is that of the moment after it.

    Returns:
        ``segments``: each with device, address, size, small, stream, expandable and ``blocks``, a flat list of
        [size, state (0 in use, 1 waiting to be freed, 2 free), number of its line or -1, requested size, ...];
        ``lines``: [file, line, function, bytes, blocks]; ``totals`` in bytes; without an event also ``history``
        (`memguard.report.html_history.snapshot_history`), and of files that are not too large ``advice``, ``steps``
        (`_steps`; None where nothing repeats) and ``replays``: settings with the reserved peak in a replay.

    Raises:
        SnapshotError: Not a snapshot, one that asks to run code, or one with too many blocks to draw.
    """
    whole = snapshot = parse_snapshot(data)
    traced = next((device for device in snapshot.devices if snapshot.trace_of(device)), None)
    if event is not None and traced is not None:
        snapshot = moment_of(snapshot, traced, event)
    if sum(len(segment.blocks) for segment in snapshot.segments) > _MOST_BLOCKS:
        raise SnapshotError(f"the snapshot has more than {_MOST_BLOCKS:,} blocks; run: memguard snapshot FILE")
    found = Lines()
    lines: dict[Line, list[int]] = {}
    drawn: list[dict[str, Any]] = []
    totals = {"reserved_bytes": 0, "allocated_bytes": 0, "waiting_bytes": 0, "free_bytes": 0, "largest_free_bytes": 0}
    totals["idle_bytes"] = 0
    for device in snapshot.devices:
        for segment in snapshot.segments_of(device):
            flat: list[int] = []
            for block in segment.blocks:
                state = _STATES.get(block.state, _FREE)
                number = -1
                if state == _FREE:
                    totals["largest_free_bytes"] = max(totals["largest_free_bytes"], block.size)
                else:
                    line = found.of(block.stack)
                    line = line if line in lines or len(lines) < _MOST_LINES else _REST
                    told = lines.setdefault(line, [len(lines), 0, 0])
                    number, told[1], told[2] = told[0], told[1] + block.size, told[2] + 1
                totals[("allocated_bytes", "waiting_bytes", "free_bytes")[state]] += block.size
                flat += [block.size, state, number, block.requested_size]
            totals["reserved_bytes"] += segment.size
            if all(block.state not in _STATES for block in segment.blocks):
                totals["idle_bytes"] += segment.size
            drawn.append(
                {
                    "device": segment.device,
                    "address": f"{segment.address:#x}",
                    "size": segment.size,
                    "small": segment.small,
                    "stream": segment.stream,
                    "expandable": segment.expandable,
                    "blocks": flat,
                }
            )
    told_lines = [[line.file, line.line, line.function, nbytes, count] for line, (_, nbytes, count) in lines.items()]
    drawing: dict[str, Any] = {"segments": drawn, "lines": told_lines, "totals": totals}
    if event is None:
        with without_collector():
            drawing["history"] = snapshot_history(whole, traced) if traced is not None else None
        explained = [analyse(whole, device) for device in whole.devices] if len(data) <= _EXPLAINED else []
        drawing["advice"] = [text for one in explained for text in one.advice]
        drawing["steps"] = next((_steps(one) for one in explained if one.device == traced), None)
        drawing["replays"] = _replays(whole, traced) if explained and traced is not None else []
    return drawing


def _steps(explained: DeviceAnalysis) -> dict[str, Any] | None:
    """How many steps the history repeats, what a typical one leaves allocated, and the lines that grow with each.

    Of a line: file, line, function, bytes a step, and bytes in all.
    """
    steps = explained.trace.steps if explained.trace is not None else None
    if steps is None:
        return None
    growth = [[line.file, line.line, line.function, line.bytes_per_step, line.bytes] for line in steps.growth]
    return {"count": steps.count, "bytes_per_step": steps.allocated_bytes_per_step, "growth": growth}


def _replays(snapshot: Snapshot, device: int) -> list[list[Any]]:
    """The reserved peak of the history replayed as it was recorded, and with expandable segments."""
    trial = try_expandable(snapshot, device)
    if trial is None:
        return []
    return [["as recorded", trial.reserved_peak_bytes], [EXPANDABLE_CONF, trial.other_reserved_peak_bytes]]


def find_snapshot(folder: Path, oom: dict[str, Any]) -> Path | None:
    """The snapshot file of a post-mortem: only ever one inside the recording's own folder."""
    name, owner = oom.get("snapshot"), oom.get("id")
    if not isinstance(name, str) or not isinstance(owner, str) or "\0" in name + owner:
        return None
    home = folder.resolve()
    for base in (home / owner, home, home.parent):
        try:
            path = (base / name).resolve()
            if home in path.parents and path.suffix == ".pickle" and path.is_file():
                return path
        except (OSError, RuntimeError):  # too long a name, a loop of links
            continue
    return None
