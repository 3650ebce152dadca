"""``memguard snapshot``: a PyTorch memory snapshot read safely, explained in words, and replayed."""

from __future__ import annotations

import argparse
import json
from typing import Any

from memguard.allocator.analysis import DeviceAnalysis, analyse
from memguard.allocator.config import AllocatorConfig
from memguard.allocator.replay import Replay, WhatIf, replay, what_if
from memguard.allocator.snapshot_reader import read_snapshot
from memguard.commands.output import tell, tell_data
from memguard.commands.parsers import add_parser
from memguard.errors import SnapshotError
from memguard.report.snapshot_text import render_device, render_replay, render_what_if
from memguard.text.units import parse_bytes


def add(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Adds the parser."""
    parser = add_parser(
        subparsers,
        "snapshot",
        "explain a memory snapshot of PyTorch",
        "Explains a file of torch.cuda.memory._dump_snapshot in words. Nothing in the file can run.",
        "memguard snapshot oom.pickle",
        "memguard snapshot oom.pickle --replay            is the simulated allocator exact on it?",
        "memguard snapshot oom.pickle --alloc-conf expandable_segments:True --capacity 24GiB",
    )
    parser.add_argument("file", metavar="FILE", help="the snapshot, usually *.pickle")
    parser.add_argument("--json", action="store_true", help="the same as JSON on stdout")
    parser.add_argument("--top", type=int, default=10, metavar="N", help="lines in each list (default: 10)")
    parser.add_argument("--replay", action="store_true", help="run the history through the simulated allocator")
    parser.add_argument(
        "--alloc-conf", metavar="CONF", help="and under another PYTORCH_CUDA_ALLOC_CONF, e.g. expandable_segments:True"
    )
    parser.add_argument("--capacity", metavar="SIZE", help="replay it on a card with this much memory, e.g. 24GiB")
    parser.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    """Explains the file, and returns 0.

    Raises:
        SnapshotError: The file is not a memory snapshot, or holds no history to replay.
        ValueError: An option makes no sense.
    """
    if given.top < 1:
        raise ValueError(f"--top must be at least 1, got {given.top}")
    if given.alloc_conf is not None:
        AllocatorConfig.parse(given.alloc_conf)
    capacity = None if given.capacity is None else parse_bytes(given.capacity)
    hypothetical = given.alloc_conf is not None or capacity is not None

    snapshot = read_snapshot(given.file)
    found = sorted((analyse(snapshot, device, given.top) for device in snapshot.devices), key=_did_not_run_out)
    traced: list[int] = []
    replays: list[Replay] = []
    others: list[WhatIf] = []
    if given.replay or hypothetical:
        traced = _traced(found, given.file)
        replays = [replay(snapshot, device) for device in traced]
        if hypothetical:
            others = [what_if(snapshot, device, conf=given.alloc_conf, capacity_bytes=capacity) for device in traced]
    if given.json:
        tell_data(json.dumps(_json(given.file, found, replays, others), indent=2))
        return 0
    parts = [f"Memory snapshot {given.file}"]
    parts += [render_device(device) for device in found] or ["It holds no memory and no history."]
    parts += [render_replay(replayed, device) for replayed, device in zip(replays, traced, strict=True)]
    parts += [render_what_if(*each) for each in zip(replays, others, traced, strict=False)]
    tell("\n\n".join(parts))
    return 0


def _did_not_run_out(found: DeviceAnalysis) -> bool:
    """Sorts the devices that ran out of memory before the others."""
    return found.trace is None or found.trace.out_of_memory is None


def _traced(found: list[DeviceAnalysis], file: str) -> list[int]:
    traced = [each.device for each in found if each.trace is not None]
    if not traced:
        raise SnapshotError(
            f"{file}: no history to replay; call torch.cuda.memory._record_memory_history() before the part in question"
        )
    return traced


def _json(file: str, found: list[DeviceAnalysis], replays: list[Replay], others: list[WhatIf]) -> dict[str, Any]:
    data: dict[str, Any] = {"version": 1, "file": file, "devices": [device.to_json() for device in found]}
    if replays:
        data["replay"] = sum(replays[1:], replays[0]).to_json()
    if others:
        data["replay"]["what_if"] = sum(others[1:], others[0]).to_json()
    return data
