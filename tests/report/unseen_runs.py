"""How a run of some hundred ranks with one asymmetric fault is written, read and scored: see `unseen_faults`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from memguard.recording.format import COLUMNS
from memguard.recording.writer import RecordingWriter
from memguard.records.findings import Finding, Severity
from memguard.records.stats import STAGES, Stage
from memguard.text.units import GIB, MIB

Array = Any
HELD = ("allocated_start_bytes", "allocated_end_bytes", "allocated_peak_bytes", "active_peak_bytes")
PEAK = ("allocated_peak_bytes", "active_peak_bytes")
TOKENS = (512, 768, 1024, 1536, 2048)
TOKEN_BYTES = 6 * MIB
CALL = ("/srv/job/pretrain.py", 118)


@dataclass(frozen=True)
class Mesh:
    """The axes with their sizes, outermost first, and how many ranks a node has."""

    axes: Mapping[str, int]
    per_node: int = 8
    node_name: str = "{}"

    @property
    def ranks(self) -> int:
        return int(np.prod(list(self.axes.values())))

    def place(self, rank: int) -> dict[str, int]:
        place = {}
        for name, size in reversed(self.axes.items()):
            rank, place[name] = divmod(rank, size)
        return place

    def node(self, rank: int, start: int, moves: bool) -> str:
        """Where a rank runs; after a restart with other machines, elsewhere."""
        number = rank // self.per_node
        return self.node_name.format(number if not (moves and start) else (number * 7 + 3) % 97)


@dataclass
class Rank:
    """What one start of a rank will write."""

    rank: int
    start: int
    place: dict[str, int]
    node: str
    rows: Array
    own: np.random.Generator
    owners: dict[str, int]
    tokens: list[int] = field(default_factory=lambda: list(TOKENS))
    findings: list[Finding] = field(default_factory=list)

    @property
    def step(self) -> Array:
        return np.arange(len(self.rows))

    def add(self, nbytes: Array, *columns: str) -> None:
        for column in columns:
            self.rows[column] += np.asarray(nbytes).astype(np.int64)

    def found(
        self, code: str, name: str, file: str, line: int, holder: str, *, severity: Severity = Severity.WARNING
    ) -> None:
        self.findings.append(
            Finding(
                code=code, name=name, severity=severity, message=f"`{holder}` ({file}:{line})", advice="change it",
                file=f"/srv/job/{file}", line=line, holder=holder, stage=Stage.TRAIN, rank=self.rank,
                batch=int(self.own.integers(5, 90)), bytes=int(self.own.integers(200 * MIB, 3 * GIB)),
            )
        )  # fmt: skip


@dataclass(frozen=True)
class Fault:
    """What is done to whom in which run, and what the report must name."""

    mesh: Mesh
    who: Callable[[Rank], bool]
    change: Callable[[Rank], None]
    axes: Mapping[str, int | str]
    file: str = "pretrain.py"
    line: int = CALL[1]
    starts: int = 1
    faulty_starts: tuple[int, ...] = (0,)
    moves: bool = False
    healthy: Callable[[Rank], None] = lambda rank: None
    """What makes ranks without the fault differ, of which no rank is at fault."""


def make_run(logdir: Path, fault: Fault, *, batches: int = 2000, seed: int = 7) -> tuple[int, ...]:
    """Writes the recordings; returns the ranks that have the fault and a recording of some length."""
    mesh, chosen = fault.mesh, []
    lot = np.random.default_rng(seed)
    lost = set(lot.choice(mesh.ranks, 4, replace=False).tolist())
    others = [rank for rank in range(mesh.ranks) if not fault.who(_rank(mesh, rank, fault.starts - 1, 4, seed, fault))]
    empty, killed = (int(each) for each in lot.choice(sorted(set(others) - lost), 2, replace=False))
    for number in range(mesh.ranks):
        for start in range(fault.starts):
            length = batches * (2 + number % 2) // 3 if start + 1 < fault.starts else batches - number % 3
            rank = _rank(mesh, number, start, length, seed, fault)
            if number in lost and not (len(fault.axes) == 1 and "rank" in fault.axes and fault.who(rank)):
                continue
            fault.healthy(rank)
            if start in fault.faulty_starts and fault.who(rank):
                fault.change(rank)
                if start == fault.starts - 1:
                    chosen.append(number)
            if number in (empty, killed) and start == fault.starts - 1:
                rank.rows = rank.rows[: 0 if number == empty else length // 3]
            write(logdir, mesh, rank, is_last=start == fault.starts - 1 and number not in (empty, killed))
    return tuple(chosen)


def _rank(mesh: Mesh, number: int, start: int, batches: int, seed: int, fault: Fault) -> Rank:
    """One without a fault: everything that differs between healthy ranks."""
    same, own = np.random.default_rng((seed, start)), np.random.default_rng((seed, start, number))
    rows, step = np.zeros(batches, dtype=[(name, kind) for name, kind in COLUMNS]), np.arange(batches)
    evaluates = step % 211 > 205
    rows["batch"] = step + start * 10_000
    rows["index"], rows["epoch"] = step % 400, step // 400
    rows["optimizer_steps"] = np.cumsum(~evaluates)
    rows["time"] = 1_795_000_000.0 + start * 9_000 + np.cumsum(same.lognormal(-1.2, 0.3, batches)) + own.normal(0, 0.05)
    rows["seconds"] = 0.3
    rows["stage"] = np.where(evaluates, STAGES.index(Stage.VALIDATION), STAGES.index(Stage.TRAIN))
    rows["shapes"] = same.integers(0, len(TOKENS), batches)
    static = int(28 * GIB * own.normal(1, 0.004))
    drift = np.abs(np.cumsum(own.normal(0, 1.5 * MIB, batches)))
    drift = np.minimum(drift, 60 * MIB)
    warm = np.exp(-step / 8) * -1.5 * GIB
    held = (static + drift + warm).astype(np.int64)
    needs = (
        np.asarray(TOKENS)[rows["shapes"]]
        * TOKEN_BYTES
        * np.where(evaluates, 0.35, 1.0)
        * own.lognormal(0, 0.03, batches)
    )
    spikes = own.pareto(2.5, batches) * 120 * MIB * (own.random(batches) < 0.03)
    rows["allocated_start_bytes"] = rows["allocated_end_bytes"] = held
    rows["allocated_peak_bytes"] = rows["active_peak_bytes"] = held + (needs + spikes).astype(np.int64)
    reserved = np.maximum.accumulate(rows["allocated_peak_bytes"]) + int(own.integers(1, 6)) * 2 * GIB // 3
    rows["reserved_bytes"] = rows["reserved_peak_bytes"] = reserved
    rows["device_used_bytes"] = reserved + int(1.4 * GIB) + int(own.integers(0, 220 * MIB))
    breath = np.abs(np.cumsum(own.normal(0, 6 * MIB, batches)))
    rows["host_rss_bytes"] = 9 * GIB + int(own.integers(0, 2 * GIB)) + np.minimum(breath, 400 * MIB).astype(np.int64)
    owners = {"parameters_bytes": 8 * GIB, "gradients_bytes": 8 * GIB, "optimizer_bytes": 12 * GIB, "buffers_bytes": 0}
    node = mesh.node(number, start, fault.moves)
    rank = Rank(number, start, mesh.place(number), node, rows, own, owners)
    rank.found("MG405", "fragmentation", "pretrain.py", 118, "", severity=Severity.INFO)
    if own.random() < 0.04:
        rank.found("MG303", "previous-batch-alive", "pretrain.py", 131, "batch")
    if own.random() < 0.03:
        rank.found("MG504", "low-headroom", "pretrain.py", 118, "")
    return rank


def write(logdir: Path, mesh: Mesh, rank: Rank, *, is_last: bool) -> None:
    session = {
        "rank": rank.rank, "world_size": mesh.ranks, "node": rank.node, "local_rank": rank.rank % mesh.per_node,
        "device": f"cuda:{rank.rank % mesh.per_node}", "device_name": "NVIDIA H100 80GB HBM3",
        "device_total_bytes": 80 * GIB, "host": rank.node, "restart": rank.start,
    }  # fmt: skip
    writer = RecordingWriter(logdir, session)
    writer.line("coordinates", {"coordinates": rank.place})
    writer.line("called", {"stage": "train", "batch": 0, "file": CALL[0], "line": CALL[1], "function": "train"})
    for number, count in enumerate(rank.tokens):
        shapes = [["input_ids", [4, count], "int64"], ["labels", [4, count], "int64"]]
        writer.line("shapes", {"id": number, "shapes": shapes})
    with open(writer.path, "ab") as file:
        file.write(rank.rows.tobytes())
    if len(rank.rows):
        for at in (1, len(rank.rows) // 3, len(rank.rows) - 1):
            batch = int(rank.rows["batch"][at])
            writer.line("owners", {"batch": batch, **rank.owners, "other_bytes": GIB // 2})
        for finding in rank.findings:
            writer.line("finding", finding.to_json())
    if is_last:
        overhead = {"seconds": 1.5, "share": 0.002}
        told = {"reason": "finished", "batches": len(rank.rows), "overhead": overhead}
        writer.line("end", {**told, "final_findings": len(rank.findings)})
    writer.close()


READ = """
import json, re, sys, time
from pathlib import Path
from memguard.report.runs import load_run
began = time.process_time()
verdicts = [each.to_json() for each in load_run([sys.argv[1]]).verdicts]
seconds = time.process_time() - began
peak = re.search(r"VmHWM:\\s*(\\d+) kB", Path("/proc/self/status").read_text())  # ru_maxrss begins with the parent's
mebibytes = int(peak[1]) / 1024
print(json.dumps([seconds, mebibytes, verdicts]))
"""


def score(fault: Fault, verdicts: list[dict[str, Any]], chosen: tuple[int, ...]) -> dict[str, bool]:
    """What of the first verdict is right; further ones make "alone" false."""
    if not verdicts:
        return dict.fromkeys(("axis", "ranks", "line", "alone"), False)
    first = verdicts[0]
    return {
        "axis": first["axes"] == dict(fault.axes),
        "ranks": first["ranks"] == list(chosen),
        "line": (Path(first["file"] or "").name, first["line"]) == (fault.file, fault.line),
        "alone": len(verdicts) == 1,
    }
