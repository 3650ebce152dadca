"""What other public tools tell of the corpus: ``python -m tests.corpus --peer NAME``, any number of them in one pass.

Each program runs once, alone, on its virtual device. A tool gets that device's numbers where it would read a GPU's, in
the proportion of a GPU of 80 GiB, at its own moments and with its own thresholds, and its own code judges them:

- ``stormlog``: its `MemoryTracker` with alerts, in a thread of its own (every 10 ms instead of 100: programs are short).
- ``traceml``: TraceML's diagnosis of step memory, from the peaks of all steps; a step ends as an optimizer's does.
- ``devicestats``: what Lightning's DeviceStatsMonitor logs, the allocated bytes at each step's end, and a threshold of
  10 % of growth, as in a dashboard's alert.

memguard's own line of the table is counted in `golden.tsv`.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import io
import multiprocessing
import os
import runpy
import statistics
import sys
import time
from abc import ABC, abstractmethod
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, ClassVar, final

from tests.corpus import golden
from tests.corpus.runner import marks_of, virtual_of

SECONDS = 120
"""A program that takes longer is ended, and has no result."""
GROWTH = 0.1
"""Of what was allocated at first, from which the threshold on DeviceStatsMonitor's curve speaks."""
LEAST_STEPS = 10
"""Points without which that threshold says nothing."""
GPU_BYTES = 80 * 1024**3
"""What every virtual device counts as: the tools' thresholds in bytes are made for GPUs, the programs are small."""
MEMGUARD = "memguard"
_IMPORTED_ONCE = ("torch", "torch.utils.data", "torch._dynamo", "lightning.pytorch", "memguard.backends.virtual")
MISSING = "{} is not installed here; in an environment of its own: pip install {}"


class Peer(ABC):
    """A tool, in the process of one program."""

    package: ClassVar[str]
    """As `pip install` takes it."""
    modules: ClassVar[tuple[str, ...]] = ()
    """What is loaded before the programs begin."""

    def __init__(self, device: Any) -> None:
        self.device = device

    def begin(self) -> None:
        """The program begins."""

    def step(self, peak_allocated: int, peak_reserved: int, allocated: int) -> None:
        """An optimizer's step ends; the peaks are those since the one before."""

    @abstractmethod
    def end(self) -> list[tuple[str, str]]:
        """What it tells: pairs of "info" or "warning", and its text."""


@final
class Stormlog(Peer):
    """Stormlog's tracker, as ``with MemoryTracker(...)`` around the program."""

    package, modules = "stormlog", ("stormlog.tracker", "stormlog.device_collectors")

    def begin(self) -> None:
        """Its thread begins to sample."""
        from stormlog.device_collectors import CudaDeviceCollector, DeviceMemorySample, DeviceMemorySampleResult
        from stormlog.tracker import MemoryTracker

        device = self.device

        class Collector(CudaDeviceCollector):  # type: ignore[misc]
            """Its own, with the virtual device's answers."""

            def is_available(self) -> bool:
                return True

            def sample_with_diagnostics(self) -> Any:
                stats = device.memory_stats()
                total = device.total_bytes
                used = stats["reserved_bytes.all.current"]
                return DeviceMemorySampleResult(
                    sample=DeviceMemorySample(
                        allocated_bytes=stats["allocated_bytes.all.current"],
                        reserved_bytes=used,
                        used_bytes=used,
                        free_bytes=total - used,
                        total_bytes=total,
                        active_bytes=stats["active_bytes.all.current"],
                        inactive_bytes=stats["inactive_split_bytes.all.current"],
                        device_id=0,
                    ),
                    partial_fields=(),
                    errors={},
                )

        import torch

        self._tracker = MemoryTracker(sampling_interval=0.01, collector=Collector(torch.device("cuda:0")))
        self._tracker.start_tracking()

    def end(self) -> list[tuple[str, str]]:
        """Its alerts, but that of fragmentation: programs of some MiB leave most of a segment of 2 MiB empty."""
        self._tracker.stop_tracking()
        alerts = {str(event.context) for event in self._tracker.get_alerts()}
        return sorted(("warning", text) for text in alerts if not text.startswith("High fragmentation"))


@final
class TraceML(Peer):
    """TraceML's own verdict on the memory of all steps, as its final summary has it."""

    package = "traceml-ai"
    modules = ("traceml_ai.diagnostics.step_memory.api", "traceml_ai.renderers.step_memory.schema")

    def __init__(self, device: Any) -> None:
        super().__init__(device)
        self._peaks: dict[str, list[float]] = {"peak_allocated": [], "peak_reserved": []}

    def step(self, peak_allocated: int, peak_reserved: int, allocated: int) -> None:
        """One more point of both curves."""
        self._peaks["peak_allocated"].append(float(peak_allocated))
        self._peaks["peak_reserved"].append(float(peak_reserved))

    def end(self) -> list[tuple[str, str]]:
        """Its primary diagnosis, if that is of memory that rises or presses."""
        from traceml_ai.diagnostics.step_memory.api import build_step_memory_diagnosis
        from traceml_ai.renderers.step_memory import schema

        metrics = []
        for name, peaks in self._peaks.items():
            count, highest = len(peaks), max(peaks, default=0.0)
            metrics.append(
                schema.StepMemoryCombinedMetric(
                    metric=name,
                    device="cuda:0",
                    series=schema.StepMemoryCombinedSeries(steps=list(range(count)), median=peaks, worst=peaks),
                    summary=schema.StepMemoryCombinedSummary(
                        window_size=count,
                        steps_used=count,
                        median_peak=highest,
                        worst_peak=highest,
                        worst_rank=0,
                        skew_ratio=1.0,
                        skew_pct=0.0,
                    ),
                    coverage=schema.StepMemoryCombinedCoverage(
                        expected_steps=count,
                        steps_used=count,
                        completed_step=count,
                        world_size=1,
                        ranks_present=1,
                        incomplete=False,
                    ),
                )
            )
        told = build_step_memory_diagnosis(metrics, gpu_total_bytes=float(self.device.total_bytes))
        if told.kind in ("NO_DATA", "NO_GPU", "BALANCED"):
            return []
        return [("info" if told.severity == "info" else "warning", f"{told.status}: {told.reason}")]


@final
class DeviceStats(Peer):
    """The curve of allocated bytes, and a threshold on its growth."""

    package = "lightning"

    def __init__(self, device: Any) -> None:
        super().__init__(device)
        self._curve: list[int] = []

    def step(self, peak_allocated: int, peak_reserved: int, allocated: int) -> None:
        """One more point."""
        self._curve.append(allocated)

    def end(self) -> list[tuple[str, str]]:
        """Whether the last fifth lies above the first one, after a tenth of warm-up."""
        curve = self._curve[len(self._curve) // 10 + 1 :]
        if len(curve) < LEAST_STEPS:
            return []
        part = max(len(curve) // 5, 1)
        first, last = statistics.fmean(curve[:part]), statistics.fmean(curve[-part:])
        return [("warning", f"allocated bytes grew by {last / first - 1:.0%}")] if last > first * (1 + GROWTH) else []


PEERS: dict[str, type[Peer]] = {"stormlog": Stormlog, "traceml": TraceML, "devicestats": DeviceStats}


@dataclass
class Row:
    """How one tool did."""

    tool: str
    version: str
    faulty: int = 0
    """Programs with a fault."""
    found: int = 0
    """Of these, how many it told anything of."""
    warned: int = 0
    """Of these, how many with a warning."""
    lines: int = 0
    """Of these, how many with the line of the fault."""
    healthy: int = 0
    remarks: int = 0
    """Healthy programs that it told anything of."""
    alarms: int = 0
    """Of these, how many with a warning."""

    def __str__(self) -> str:
        return (
            f"| {self.tool} {self.version} | {self.found} of {self.faulty} | {self.warned} | {self.lines} | "
            f"{self.alarms} of {self.healthy} | {self.remarks} |"
        )


HEADER = (
    "| tool | faulty programs: anything told | with a warning | with the line | "
    "healthy programs: a warning | anything told |\n|---|---|---|---|---|---|"
)


def check(names: list[str]) -> str | None:
    """In words, which of these tools cannot run here; None if all can."""
    for name in names:
        try:
            importlib.metadata.version(PEERS[name].package)
        except importlib.metadata.PackageNotFoundError:
            return MISSING.format(name, PEERS[name].package)
    return None


def compare(paths: list[Path], names: list[str], jobs: int, minutes: float) -> list[Row]:
    """Runs the programs under these tools; memguard's own row, of the same programs, comes first.

    Args:
        paths: The programs.
        names: The tools.
        jobs: So many programs side by side.
        minutes: After so many no further one is waited for.
    """
    rows = {name: Row(name, importlib.metadata.version(PEERS[name].package)) for name in names}
    own = Row(MEMGUARD, "(this checkout)")
    for module in (*_IMPORTED_ONCE, *(each for name in names for each in PEERS[name].modules)):
        importlib.import_module(module)
    known, began = golden.read(), time.monotonic()
    with ThreadPoolExecutor(jobs) as pool:
        for path, told in zip(paths, pool.map(lambda each: _told(each, names), paths), strict=True):
            marks = marks_of(path)
            if isinstance(told, str) or (found := known.get(("virtual", golden.name_of(path)))) is None:
                print(f"{golden.name_of(path)}: left out: {told if isinstance(told, str) else 'not in golden.tsv'}")
                continue
            lines = {_line_of(path, mark.file, mark.line) for mark in marks}
            ours = [("info" if each.is_remark else "warning", each.line) for each in found if each.code[:2] == "MG"]
            _count(own, bool(marks), ours, any(line in lines for _, line in ours))
            for name in names:
                for kind, text in told[name][:3]:
                    print(f"{golden.name_of(path)}: {name}: {kind}: {text}", flush=True)
                named = any(f".py:{mark.line}" in text for mark in marks for _, text in told[name])
                _count(rows[name], bool(marks), told[name], named)
            if time.monotonic() - began > 60 * minutes:
                pool.shutdown(cancel_futures=True)
                break
    return [own, *rows.values()]


def _line_of(path: Path, file: str | None, line: int | None) -> str:
    return str(line) if path.is_file() or line is None else f"{Path(file or '').name}:{line}"


def _count(row: Row, is_faulty: bool, told: list[tuple[str, str]], has_line: bool) -> None:
    warns = any(kind == "warning" for kind, _ in told)
    if is_faulty:
        row.faulty += 1
        row.found += bool(told)
        row.warned += warns
        row.lines += has_line
    else:
        row.healthy += 1
        row.remarks += bool(told)
        row.alarms += warns


def _told(path: Path, names: list[str]) -> dict[str, list[tuple[str, str]]] | str:
    """What the tools tell of one program, which runs in a forked process; or in words why there is nothing."""
    if not virtual_of(path).startswith("virtual:"):
        return "it runs on the CPU"
    forked = multiprocessing.get_context("fork")
    ours, theirs = forked.Pipe(duplex=False)
    process = forked.Process(target=_run, args=(path, names, theirs))
    process.start()
    theirs.close()
    try:
        answer = ours.recv() if ours.poll(SECONDS) else f"took more than {SECONDS} s"
    except EOFError:
        answer = "its process died"
    process.kill()
    process.join()
    return answer  # type: ignore[no-any-return]


def _run(path: Path, names: list[str], answer: Connection) -> None:
    from torch.optim.optimizer import register_optimizer_step_post_hook

    from memguard.backends.virtual import VirtualBackend
    from memguard.text.units import parse_bytes

    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path.cwd()), os.environ.get("PYTHONPATH", "")])  # its workers'
    script = path / "main.py" if path.is_dir() else path
    size, _, conf = virtual_of(path).removeprefix("virtual:").partition(",")
    device = _Device(VirtualBackend(parse_bytes(size), conf=conf))
    peers = {name: PEERS[name](device) for name in names}

    def stepped(*args: object) -> None:
        stats = device.backend.boundary()
        read = stats.allocated_peak_bytes, stats.reserved_peak_bytes, stats.allocated_bytes
        scaled = [int((each or 0) * device.scale) for each in read]
        for peer in peers.values():
            peer.step(*scaled)

    sys.argv, sys.path[0] = [str(script)], str(script.parent)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        device.backend.install()
        for peer in peers.values():
            peer.begin()
        register_optimizer_step_post_hook(stepped)
        with contextlib.suppress(Exception, SystemExit):  # some run out of memory, as they are meant to
            runpy.run_path(str(script), run_name="__main__")
        told = {name: peer.end() for name, peer in peers.items()}
        device.backend.remove()
    answer.send(told)


@final
class _Device:
    """The virtual device as the tools see it, from any thread: as large as a GPU, with all in proportion."""

    def __init__(self, backend: Any) -> None:
        self.backend = backend
        self.total_bytes = GPU_BYTES
        self.scale: float = GPU_BYTES / backend.total_bytes

    def memory_stats(self) -> dict[str, int]:
        """As ``torch.cuda.memory_stats()``."""
        return {key: int(value * self.scale) for key, value in self.backend.memory_stats().items() if "bytes" in key}
