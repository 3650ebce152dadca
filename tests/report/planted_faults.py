"""Runs of many ranks as their recordings, each with one fault that sits on one group of ranks.

``python -m tests.report.planted_faults DIR FAULT [--ranks 512]`` writes one; `FAULTS` says what is right for each.
"""

from __future__ import annotations

import argparse
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

START = 1_790_000_000.0
LENGTHS = (128, 192, 256, 384)
CALLED = "/home/user/train.py"


@dataclass
class Layout:
    """How ranks are spread over the axes, in Megatron's order tp-dp-pp, eight to a node."""

    ranks: int = 512
    tp: int = 4
    pp: int = 4
    ep: int = 4

    def place(self, rank: int) -> dict[str, int]:
        data = self.ranks // (self.tp * self.pp)
        return {
            "tp": rank % self.tp,
            "dp": rank // self.tp % data,
            "pp": rank // (self.ranks // self.pp),
            "ep": rank // self.tp % self.ep,
        }


@dataclass
class Rank:
    """One rank's rows and lines, for a fault to change."""

    rank: int
    place: dict[str, int]
    node: int
    rows: Any
    number: Any
    """0, 1, 2 ... of the batches."""
    longer: bool = False
    owners: dict[str, int] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    def add(self, nbytes: Any, *columns: str) -> None:
        for column in columns:
            self.rows[column] += np.asarray(nbytes).astype(np.int64)

    def finding(self, code: str, name: str, file: str, line: int, holder: str) -> None:
        self.findings.append(
            Finding(
                code=code, name=name, severity=Severity.WARNING, message=f"{holder} keeps more with every batch.",
                advice="let it go.", file=f"/home/user/{file}", line=line, holder=holder, stage=Stage.TRAIN, batch=12,
                bytes=2 * GIB, rank=self.rank,
            )
        )  # fmt: skip


FLOOR = ("allocated_start_bytes", "allocated_end_bytes", "allocated_peak_bytes", "active_peak_bytes")
Change = Callable[[Rank, int], None]


@dataclass(frozen=True)
class Fault:
    """What is done to whom, and what the report must say."""

    who: Callable[[Rank], bool]
    change: Change
    axes: Mapping[str, int | str]
    file: str
    line: int
    only_after_restart: bool = False


def first_stage(rank: Rank, start: int) -> None:
    """It has the embedding: more parameters."""
    rank.add(9 * GIB, *FLOOR)
    rank.owners["parameters_bytes"] += 9 * GIB


def last_stage(rank: Rank, start: int) -> None:
    """It keeps the outputs of each step."""
    rank.add(rank.number * 2.1 * MIB, *FLOOR)
    rank.finding("MG301", "outputs-accumulate", "schedule.py", 88, "outputs")


def one_expert(rank: Rank, start: int) -> None:
    """Its experts get more tokens."""
    rank.add(11 * GIB, "allocated_peak_bytes", "active_peak_bytes")


def one_tensor_part(rank: Rank, start: int) -> None:
    """It keeps a gathered copy of what is sharded."""
    rank.add(6 * GIB, *FLOOR)
    rank.finding("MG308", "model-copy", "layers.py", 20, "Linear.gathered")


def nodes_loader(rank: Rank, start: int) -> None:
    """Its data set caches what it reads."""
    rank.add(rank.number * 3 * MIB, "host_rss_bytes")
    rank.finding("MG701", "host-growth", "data.py", 33, "Shards._cache")


def groups_buffers(rank: Rank, start: int) -> None:
    """Its communicators hold buffers outside PyTorch's allocator."""
    rank.add(5 * GIB, "device_used_bytes")


def longer_batch(rank: Rank, start: int) -> None:
    """Its sampler gives it twice as long batches."""
    rank.longer = True
    activations = np.asarray(LENGTHS)[rank.rows["shapes"]] * 32 * MIB
    rank.add(activations, "allocated_peak_bytes", "active_peak_bytes")


def leak_after_restart(rank: Rank, start: int) -> None:
    """It keeps each loss since it began anew."""
    rank.add(rank.number * MIB, *FLOOR)
    rank.finding("MG101", "retained-graph", "train.py", 52, "losses")


def late_leak(rank: Rank, start: int) -> None:
    """It begins to keep activations after half of the run."""
    rank.add(np.maximum(rank.number - len(rank.number) // 2, 0) * 8 * MIB, *FLOOR)
    rank.finding("MG301", "outputs-accumulate", "schedule.py", 97, "Stage.kept")


FAULTS: dict[str, Fault] = {
    "first stage": Fault(lambda r: r.place["pp"] == 0, first_stage, {"pp": 0}, "train.py", 41),
    "last stage": Fault(lambda r: r.place["pp"] == 3, last_stage, {"pp": 3}, "schedule.py", 88),
    "one expert": Fault(lambda r: r.place["ep"] == 2, one_expert, {"ep": 2}, "train.py", 41),
    "one tensor part": Fault(lambda r: r.place["tp"] == 3, one_tensor_part, {"tp": 3}, "layers.py", 20),
    "one node's loader": Fault(lambda r: r.node == 7, nodes_loader, {"node": "7"}, "data.py", 33),
    "a group's buffers": Fault(
        lambda r: r.place["pp"] == 1 and r.place["tp"] == 2, groups_buffers, {"pp": 1, "tp": 2}, "train.py", 41
    ),
    "a longer batch": Fault(lambda r: r.rank == 37, longer_batch, {"rank": 37}, "train.py", 41),
    "a late leak": Fault(
        lambda r: r.place["tp"] == 1 and r.place["pp"] == 2, late_leak, {"tp": 1, "pp": 2}, "schedule.py", 97
    ),
    "a leak after restart": Fault(
        lambda r: r.rank == 42, leak_after_restart, {"rank": 42}, "train.py", 52, only_after_restart=True
    ),
}


def make_run(
    logdir: Path, fault: str | None, *, layout: Layout | None = None, batches: int = 2000, seed: int = 1
) -> tuple[int, ...]:
    """Writes the recordings of all ranks.

    Args:
        logdir: Where to.
        fault: One of `FAULTS`; None for a run without one.
        layout: How many ranks there are, and where.
        batches: Training batches of each start.
        seed: Of the noise: spikes, jitter, and findings that ranks have for no reason of their place.

    Returns:
        The ranks that have the fault.
    """
    layout = layout or Layout()
    planted, chosen = FAULTS[fault] if fault is not None else None, []
    starts = 2 if planted is not None and planted.only_after_restart else 1
    for number in range(layout.ranks):
        for start in range(starts):
            rank = _rank(layout, number, start, batches, seed)
            if planted is not None and start == starts - 1 and planted.who(rank):
                planted.change(rank, start)
                chosen.append(number)
            _write(logdir, layout, rank, start, batches)
    return tuple(chosen)


def _rank(layout: Layout, number: int, start: int, batches: int, seed: int) -> Rank:
    same, own = np.random.default_rng(seed), np.random.default_rng((seed, number, start))
    batch = np.arange(batches)
    rows = np.zeros(batches, dtype=[(name, kind) for name, kind in COLUMNS])
    rows["batch"], rows["index"], rows["optimizer_steps"] = batch + start * batches, batch, batch + 1
    rows["time"], rows["seconds"] = START + (batch + start * batches) * 0.1 + 0.001 * number, 0.1
    rows["stage"], rows["shapes"] = STAGES.index(Stage.TRAIN), same.integers(0, len(LENGTHS), batches)
    floor = 30 * GIB + number % 5 * 8 * MIB + own.integers(0, 24 * MIB, batches)
    activations = np.asarray(LENGTHS)[rows["shapes"]] * 32 * MIB
    spikes = np.where(own.random(batches) < 0.01, own.integers(0, 6 * GIB, batches), 0)
    rows["allocated_start_bytes"] = rows["allocated_end_bytes"] = floor
    rows["allocated_peak_bytes"] = rows["active_peak_bytes"] = floor + activations + spikes
    rows["reserved_bytes"] = rows["reserved_peak_bytes"] = 60 * GIB + number % 3 * GIB
    rows["device_used_bytes"] = rows["reserved_bytes"] + 2 * GIB + own.integers(0, 300 * MIB)
    rows["host_rss_bytes"] = 6 * GIB + own.integers(0, 900 * MIB) + own.integers(0, 20 * MIB, batches)
    owners = {"parameters_bytes": 12 * GIB, "gradients_bytes": 6 * GIB, "optimizer_bytes": 12 * GIB}
    rank = Rank(number, layout.place(number), number // 8, rows, batch, owners={**owners, "buffers_bytes": 0})
    rank.finding("MG303", "previous-batch-alive", "train.py", 60, "output")  # all ranks have this one
    if own.random() < 0.05:
        rank.finding("MG504", "low-headroom", "train.py", 41, "")
    return rank


def _write(logdir: Path, layout: Layout, rank: Rank, start: int, batches: int) -> None:
    session = {
        "rank": rank.rank,
        "world_size": layout.ranks,
        "node": str(rank.node),
        "local_rank": rank.rank % 8,
        "device": f"cuda:{rank.rank % 8}",
        "device_name": "NVIDIA H100 80GB HBM3",
        "device_total_bytes": 80 * GIB,
        "host": f"node{rank.node}",
        "restart": start,
    }
    writer = RecordingWriter(logdir, session)
    writer.line("coordinates", {"coordinates": rank.place})
    writer.line("called", {"stage": "train", "batch": 0, "file": CALLED, "line": 41, "function": "main"})
    for number, length in enumerate(LENGTHS):
        shape = [8, 2 * length if rank.longer else length]
        writer.line("shapes", {"id": number, "shapes": [["x", shape, "torch.int64"]]})
    with open(writer.path, "ab") as file:
        file.write(rank.rows.tobytes())
    for batch in (3, batches // 2):
        writer.line("owners", {"batch": batch + start * batches, **rank.owners, "other_bytes": GIB})
    for finding in rank.findings:
        writer.line("finding", finding.to_json())
    overhead = {"seconds": 0.001 * batches, "share": 0.001}
    told = {"reason": "finished", "batches": batches, "overhead": overhead, "final_findings": len(rank.findings)}
    writer.line("end", told)
    writer.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("logdir", type=Path)
    parser.add_argument("fault", choices=[*FAULTS, "none"])
    parser.add_argument("--ranks", type=int, default=512)
    given = parser.parse_args()
    print(make_run(given.logdir, None if given.fault == "none" else given.fault, layout=Layout(ranks=given.ranks)))
