"""Questions about memory snapshots: explained, compared, replayed through the simulated allocator. No torch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, final

from memguard.allocator.analysis import DeviceAnalysis, analyse
from memguard.allocator.analysis.lines import LineBytes
from memguard.allocator.config import AllocatorConfig
from memguard.allocator.replay import Replay, replay, what_if
from memguard.allocator.snapshot import Snapshot
from memguard.allocator.snapshot_reader import read_snapshot
from memguard.assistants.directory import Directory, bounded
from memguard.errors import MemGuardError
from memguard.report.snapshot_text import render_device, render_replay, render_what_if
from memguard.text.units import format_bytes, parse_bytes

MOST_FILES, MOST_LINES = 50, 40
_ALL_LINES = 100_000


@final
class SnapshotTools:
    """Tools that read the memory snapshots below a directory; nothing in such a file is run."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory

    def tools(self) -> list[Any]:
        """The functions that an assistant may call."""
        return [self.list_snapshots, self.explain_snapshot, self.compare_snapshots, self.replay_snapshot]

    def list_snapshots(self, limit: int = 20) -> dict[str, Any]:
        """Lists the files that may be PyTorch memory snapshots (*.pickle, *.pkl), the newest first.

        Args:
            limit: How many, at most 50.
        """
        files = sorted(self._directory.files(".pickle", ".pkl"), key=lambda path: path.stat().st_mtime, reverse=True)
        result = [
            {"file": self._directory.name_of(path), "file_bytes": path.stat().st_size}
            for path in files[: max(1, min(limit, MOST_FILES))]
        ]
        return bounded({"directory": str(self._directory.root), "snapshots": result, "files_in_all": len(files)})

    def explain_snapshot(self, file: str, top: int = 5) -> dict[str, Any]:
        """Explains a snapshot: reserved, allocated, fragmentation, the peak and its lines, growth, what failed, advice.

        Args:
            file: The file, as list_snapshots names it.
            top: Lines in each list, at most 40.
        """
        devices = [_cut(each, max(1, min(top, MOST_LINES))) for each in self._analyses(file)]
        text = "\n\n".join(map(render_device, devices))
        return bounded({"file": file, "devices": list(map(_plain, devices)), "text": text})

    def compare_snapshots(self, file: str, earlier: str, top: int = 10) -> dict[str, Any]:
        """How a snapshot differs from another one: reserved and allocated, and the lines that hold more or less.

        Args:
            file: The file.
            earlier: The one it is compared with.
            top: Lines in each list, at most 40.
        """
        after, before = ({each.device: each for each in self._analyses(name)} for name in (file, earlier))
        most = max(1, min(top, MOST_LINES))
        devices = []
        for device in sorted({*after, *before}):
            if device not in after or device not in before:
                devices.append({"device": device, "only_in": file if device in after else earlier})
                continue
            new, old = after[device], before[device]
            devices.append(
                {
                    "device": device,
                    "reserved_bytes": _pair(old.space.reserved_bytes, new.space.reserved_bytes),
                    "allocated_bytes": _pair(old.space.active_allocated_bytes, new.space.active_allocated_bytes),
                    "fragmentation": {"earlier": old.space.fragmentation, "now": new.space.fragmentation},
                    "lines_in_use": _differences(old.lines, new.lines, most),
                    "peak": _peaks(old, new, most),
                }
            )
        return bounded({"file": file, "earlier": earlier, "devices": devices})

    def replay_snapshot(self, file: str, alloc_conf: str = "", capacity: str = "") -> dict[str, Any]:
        """Runs a snapshot's history through the simulated allocator: as it was, and with other settings or less memory.

        Args:
            file: The file.
            alloc_conf: A PYTORCH_CUDA_ALLOC_CONF to try, like expandable_segments:True; "" for none.
            capacity: Memory of another card, like 24GiB; "" for none.
        """
        if alloc_conf:
            AllocatorConfig.parse(alloc_conf)
        capacity_bytes = parse_bytes(capacity) if capacity else None
        snapshot = self._snapshot(file)
        traced = [device for device in snapshot.devices if snapshot.trace_of(device)]
        if not traced:
            raise MemGuardError(
                f"{file} holds no history to replay: it was not recorded "
                "(torch.cuda.memory._record_memory_history() was not called before)"
            )
        devices = []
        for device in traced:
            found = self._replayed(file, snapshot, device)
            result: dict[str, Any] = {"device": device, **found.to_json(), "text": render_replay(found, device)}
            if alloc_conf or capacity:
                other = what_if(snapshot, device, conf=alloc_conf or None, capacity_bytes=capacity_bytes)
                result["what_if"] = {**other.to_json(), "text": render_what_if(found, other, device)}
            devices.append(result)
        return bounded({"file": file, "devices": devices})

    # Inside

    def _snapshot(self, file: str) -> Snapshot:
        path = self._file(file)
        snapshot: Snapshot = self._once("snapshot", file, 0, lambda: read_snapshot(path))
        return snapshot

    def _analyses(self, file: str) -> list[DeviceAnalysis]:
        snapshot = self._snapshot(file)
        found: list[DeviceAnalysis] = self._once(
            "analysis", file, 0, lambda: [analyse(snapshot, device, _ALL_LINES) for device in snapshot.devices]
        )
        return found

    def _replayed(self, file: str, snapshot: Snapshot, device: int) -> Replay:
        found: Replay = self._once("replay", file, device, lambda: replay(snapshot, device))
        return found

    def _once(self, what: str, file: str, which: int, read: Any) -> Any:
        found = self._file(file).stat()
        return self._directory.once((what, file, which), (found.st_size, found.st_mtime_ns), read)

    def _file(self, file: str) -> Path:
        path = self._directory.path(file)
        if not path.is_file():
            raise MemGuardError(f"{file!r} is no file; list_snapshots names the files there are")
        return path


def _cut(found: DeviceAnalysis, top: int) -> DeviceAnalysis:
    """The same with a few lines in each list."""
    trace = found.trace
    if trace is not None:
        peak, end = (replace(moment, lines=moment.lines[:top]) for moment in (trace.peak, trace.end))
        trace = replace(trace, lines=trace.lines[:top], peak=peak, end=end)
    return replace(found, lines=found.lines[:top], trace=trace)


def _plain(found: DeviceAnalysis) -> dict[str, Any]:
    """An analysis as plain data, each line with its place as text."""
    data = found.to_json()
    data["lines"] = _lines(found.lines)
    if found.trace is not None:
        data["trace"]["lines"] = _lines(found.trace.lines)
        for name, moment in (("peak", found.trace.peak), ("end", found.trace.end)):
            data["trace"][name]["lines"] = _lines(moment.lines)
    return data


def _lines(lines: Iterable[LineBytes]) -> list[dict[str, Any]]:
    return [
        {"where": each.where, "bytes": each.bytes, "size": format_bytes(each.bytes), "count": each.count}
        for each in lines
    ]


def _pair(earlier: int, now: int) -> dict[str, Any]:
    return {"earlier": earlier, "now": now, "difference": now - earlier}


def _peaks(old: DeviceAnalysis, new: DeviceAnalysis, most: int) -> dict[str, Any] | None:
    """The peaks of two histories; None where one has no history."""
    if old.trace is None or new.trace is None:
        return None
    before, after = old.trace.peak, new.trace.peak
    return {
        "allocated_bytes": _pair(before.allocated_bytes, after.allocated_bytes),
        "lines": _differences(before.lines, after.lines, most),
    }


def _differences(old: Iterable[LineBytes], new: Iterable[LineBytes], most: int) -> list[dict[str, Any]]:
    """The lines with the largest differences."""
    before, after = ({each.where: each.bytes for each in lines} for lines in (old, new))
    result = [{"where": where, **_pair(before.get(where, 0), after.get(where, 0))} for where in {*before, *after}]
    result = [each for each in result if each["difference"]]
    return sorted(result, key=lambda each: (-abs(each["difference"]), each["where"]))[:most]
