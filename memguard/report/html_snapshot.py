"""A memory snapshot as a map of segments and blocks, for the page to draw. No torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from memguard.allocator.snapshot_pickle import load_plain_pickle
from memguard.errors import SnapshotError

_MOST_BLOCKS = 200_000
_MOST_LINES = 60
_STATES = {"active_allocated": 0, "active_pending_free": 1, "active_awaiting_free": 1}
_FREE = 2
_LIBRARY = ("/site-packages/", "/dist-packages/", "/torch/", "torch/csrc", "<frozen", "??")


def snapshot_map(data: bytes) -> dict[str, Any]:
    """The segments and blocks of a snapshot, with the line that allocated each block, as JSON values.

    Args:
        data: A pickle of ``torch.cuda.memory._dump_snapshot``; it is read as plain data, never unpickled.

    Returns:
        ``segments``: each with device, address, size, small, stream, expandable and ``blocks``, a flat list of
        [size, state (0 in use, 1 waiting to be freed, 2 free), number of its line or -1, requested size, ...];
        ``lines``: [file, line, function, bytes, blocks], the largest first; ``totals`` in bytes.

    Raises:
        SnapshotError: Not a snapshot, or one that asks to run code.
    """
    snapshot = load_plain_pickle(data)
    segments = snapshot.get("segments") if isinstance(snapshot, dict) else snapshot
    if not isinstance(segments, list) or not all(isinstance(each, dict) for each in segments):
        raise SnapshotError("not a memory snapshot: it holds no list of segments")
    lines: dict[tuple[str, int, str], list[int]] = {}
    drawn: list[dict[str, Any]] = []
    totals = {"reserved_bytes": 0, "allocated_bytes": 0, "waiting_bytes": 0, "free_bytes": 0, "largest_free_bytes": 0}
    count = 0
    for segment in sorted(segments, key=lambda each: (_whole(each.get("device")), _whole(each.get("address")))):
        flat: list[int] = []
        for block in _blocks(segment):
            count += 1
            if count > _MOST_BLOCKS:
                raise SnapshotError(f"the snapshot has more than {_MOST_BLOCKS} blocks; run: memguard snapshot FILE")
            size = _whole(block.get("size"))
            state = _STATES.get(str(block.get("state")), _FREE)
            requested = _whole(block.get("requested_size", size))
            number = -1
            if state != _FREE:
                line = lines.setdefault(_line(block), [len(lines), 0, 0])
                number, line[1], line[2] = line[0], line[1] + size, line[2] + 1
            else:
                totals["largest_free_bytes"] = max(totals["largest_free_bytes"], size)
            totals[("allocated_bytes", "waiting_bytes", "free_bytes")[state]] += size
            flat += [size, state, number, requested]
        size = _whole(segment.get("total_size"))
        totals["reserved_bytes"] += size
        drawn.append(
            {
                "device": _whole(segment.get("device")),
                "address": f"0x{_whole(segment.get('address')):x}",
                "size": size,
                "small": segment.get("segment_type") == "small",
                "stream": _whole(segment.get("stream")),
                "expandable": bool(segment.get("is_expandable", False)),
                "blocks": flat,
            }
        )
    return {"segments": drawn, "lines": _largest(lines), "totals": totals}


def find_snapshot(folder: Path, oom: dict[str, Any]) -> Path | None:
    """The snapshot file of a post-mortem: only ever one inside the recording's own folder.

    Args:
        folder: The ``memguard`` folder of the recording.
        oom: The post-mortem's line.
    """
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


def _blocks(segment: dict[str, Any]) -> list[dict[str, Any]]:
    blocks = segment.get("blocks")
    return [each for each in blocks if isinstance(each, dict)] if isinstance(blocks, list) else []


def _whole(value: Any) -> int:
    return value if isinstance(value, int) and 0 <= value < 2**64 else 0


def _line(block: dict[str, Any]) -> tuple[str, int, str]:
    """The innermost line of the user's own code; else the innermost Python line; else nothing known."""
    frames = block.get("frames")
    history = block.get("history")
    if not frames and isinstance(history, list) and history and isinstance(history[-1], dict):
        frames = history[-1].get("frames")  # snapshots of torch 2.0
    known = []
    for frame in frames if isinstance(frames, list) else []:
        if isinstance(frame, dict) and str(frame.get("filename", "")).endswith(".py"):
            place = (str(frame["filename"])[:500], _whole(frame.get("line")), str(frame.get("name", ""))[:200])
            if not any(part in place[0] for part in _LIBRARY):
                return place
            known.append(place)
    return known[0] if known else ("", 0, "")


def _largest(lines: dict[tuple[str, int, str], list[int]]) -> list[list[Any]]:
    """The lines by their numbers; beyond the largest, files are left out to keep the answer small."""
    largest = sorted(lines.values(), key=lambda line: -line[1])[:_MOST_LINES]
    keep = {line[0] for line in largest}
    return [
        [*(place if number in keep or len(lines) < 5000 else ("", 0, "")), nbytes, blocks]
        for place, (number, nbytes, blocks) in lines.items()
    ]
