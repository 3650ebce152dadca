"""A run of many ranks as its recordings, one heavier than the others: ``python -m tests.report.many_ranks DIR``."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from memguard.recording.format import COLUMNS
from memguard.recording.writer import RecordingWriter
from memguard.records.findings import Finding, Severity
from memguard.records.stats import STAGES, Stage
from memguard.text.units import GIB, MIB

START = 1_790_000_000.0
LENGTHS = (128, 192, 256, 384)


def make_many(
    logdir: Path,
    *,
    ranks: int = 512,
    batches: int = 2000,
    heavy: int = 137,
    per_node: int = 8,
    fallen: int | None = None,
) -> None:
    """Writes the recordings.

    Args:
        logdir: Where to.
        ranks: How many there are.
        batches: Training batches of each.
        heavy: The rank with twice as long batches and a leak of its own.
        per_node: Ranks on a node.
        fallen: A rank that was killed at a third of the run; None for none. The others end a little later.
    """
    for rank in range(ranks):
        stop = batches if fallen is None else batches // 3 + (rank != fallen)
        session = {
            "rank": rank,
            "world_size": ranks,
            "node": str(rank // per_node),
            "local_rank": rank % per_node,
            "device": f"cuda:{rank % per_node}",
            "device_name": "NVIDIA H100 80GB HBM3",
            "device_total_bytes": 80 * GIB,
            "host": f"node{rank // per_node}",
        }
        writer = RecordingWriter(logdir, session)
        for number, length in enumerate(LENGTHS):
            longer = 2 * length if rank == heavy else length
            writer.line("shapes", {"id": number, "shapes": [["x", [8, longer], "torch.int64"]]})
        with open(writer.path, "ab") as file:
            file.write(_rows(rank, stop, heavy=rank == heavy).tobytes())
        for batch in (3, 40, 300):
            owners = {"parameters_bytes": 14 * GIB, "gradients_bytes": 7 * GIB, "optimizer_bytes": 14 * GIB}
            writer.line("owners", {"batch": batch, **owners, "buffers_bytes": 0, "other_bytes": GIB})
        if rank == heavy:
            writer.line("finding", leak(rank).to_json())
        if fallen is None:
            overhead = {"seconds": 0.001 * batches, "share": 0.001}
            writer.line("end", {"reason": "finished", "batches": batches, "overhead": overhead})
        writer.close()


def leak(rank: int) -> Finding:
    """The heavy rank's own fault."""
    return Finding(
        code="MG101",
        name="retained-graph",
        severity=Severity.WARNING,
        message="losses in /home/user/train.py:41 keeps the graphs of earlier batches.",
        advice="append loss.detach() or loss.item() instead.",
        file="/home/user/train.py",
        line=41,
        holder="losses",
        stage=Stage.TRAIN,
        batch=12,
        bytes=6 * GIB,
        rank=rank,
    )


def _rows(rank: int, batches: int, *, heavy: bool) -> np.ndarray:  # type: ignore[type-arg]
    rows = np.zeros(batches, dtype=[(name, kind) for name, kind in COLUMNS])
    number = np.arange(batches)
    shapes = np.random.default_rng(5).integers(0, len(LENGTHS), batches)
    activations = np.asarray(LENGTHS)[shapes] * 64 * MIB // (1 if heavy else 2)
    rows["batch"] = rows["index"] = number
    rows["optimizer_steps"] = number + 1
    rows["time"], rows["seconds"] = START + number * 0.1 + 0.001 * rank, 0.1
    rows["stage"], rows["epoch"], rows["shapes"] = STAGES.index(Stage.TRAIN), 0, shapes
    floor = 35 * GIB + (number * (6 * GIB // batches) if heavy else 0)
    rows["allocated_start_bytes"] = rows["allocated_end_bytes"] = floor
    rows["allocated_peak_bytes"] = rows["active_peak_bytes"] = floor + activations + rank % 7 * MIB
    rows["reserved_bytes"] = rows["reserved_peak_bytes"] = 70 * GIB
    rows["device_used_bytes"], rows["host_rss_bytes"] = 71 * GIB, 5 * GIB
    return rows


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("logdir", type=Path)
    parser.add_argument("--ranks", type=int, default=512)
    parser.add_argument("--batches", type=int, default=2000)
    make_many(**vars(parser.parse_args()))
