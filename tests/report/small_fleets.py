"""Runs of 2 to 64 ranks: healthy ones that differ as healthy ranks do, and eight with one asymmetric fault each.

``python -m tests.report.small_fleets`` writes all, reads them, and prints what is wrong: any verdict about a healthy
run, and of a faulty one anything but a single verdict with the right axis, ranks and line.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from memguard.recording.format import COLUMNS
from memguard.records.stats import STAGES, Stage
from memguard.report.axis_verdicts import AxisVerdict
from memguard.report.runs import load_run
from memguard.text.units import GIB, MIB
from tests.report.unseen_runs import HELD, PEAK, TOKEN_BYTES, TOKENS, Fault, Mesh, Rank, score, write


def make_fleet(logdir: Path, fault: Fault, *, batches: int, seed: int) -> tuple[int, ...]:
    """Writes the recordings of a small run; returns the ranks that have the fault."""
    chosen = []
    for number in range(fault.mesh.ranks):
        for start in range(fault.starts):
            rank = _rank(fault, number, start, batches, seed)
            fault.healthy(rank)
            if start in fault.faulty_starts and fault.who(rank):
                fault.change(rank)
                if start == fault.starts - 1:
                    chosen.append(number)
            write(logdir, fault.mesh, rank, is_last=start == fault.starts - 1)
    return tuple(chosen)


def _rank(fault: Fault, number: int, start: int, batches: int, seed: int) -> Rank:
    """Jitter, a warm-up, longer batches by chance, a shorter last batch of each epoch, RAM that wanders."""
    mesh, own = fault.mesh, np.random.default_rng((seed, start, number))
    rows, step = np.zeros(batches, dtype=[(name, kind) for name, kind in COLUMNS]), np.arange(batches)
    rows["batch"] = step + start * 10_000
    rows["index"], rows["epoch"] = step % 90, step // 90
    rows["optimizer_steps"], rows["stage"] = step + 1, STAGES.index(Stage.TRAIN)
    rows["time"], rows["seconds"] = 1_795_000_000.0 + start * 9_000 + step * 0.3 + own.normal(0, 0.05), 0.3
    rows["shapes"] = own.integers(0, len(TOKENS), batches)  # each rank draws its own batches
    held = 24 * GIB + own.integers(0, 24 * MIB, batches) + int(own.integers(0, 60 * MIB))
    held -= np.where(step < 4, 9 * GIB, 0)  # the optimizer states are not there yet
    length = np.asarray(TOKENS)[rows["shapes"]] * np.where(own.random(batches) < 0.03, 2.0, 1.0)
    length *= np.where(rows["index"] == 89, own.uniform(0.1, 0.9), 1.0)
    rows["allocated_start_bytes"] = rows["allocated_end_bytes"] = held
    rows["allocated_peak_bytes"] = rows["active_peak_bytes"] = held + (length * TOKEN_BYTES).astype(np.int64)
    reserved = np.maximum.accumulate(rows["allocated_peak_bytes"]) + int(own.integers(1, 4)) * GIB // 2
    rows["reserved_bytes"] = rows["reserved_peak_bytes"] = reserved
    rows["device_used_bytes"] = reserved + int(1.2 * GIB) + int(own.integers(0, 250 * MIB))
    walk = np.cumsum(own.normal(0, 5 * MIB, batches)) + np.minimum(step / 60, 1.0) * own.uniform(100, 400) * MIB
    rows["host_rss_bytes"] = int(7 * GIB + own.integers(0, 2 * GIB)) + walk.astype(np.int64)
    owners = {"parameters_bytes": 6 * GIB, "gradients_bytes": 6 * GIB, "optimizer_bytes": 11 * GIB, "buffers_bytes": 0}
    node = mesh.node(number, start, fault.moves)
    rank = Rank(number, start, mesh.place(number), node, rows, own, owners)
    if own.random() < 0.06:
        rank.found("MG303", "previous-batch-alive", "pretrain.py", 131, "batch")
    return rank


def nothing(rank: Rank) -> None:
    """No fault."""


def stages_of_different_size(rank: Rank) -> None:
    """Each has other layers, and keeps as many micro-batches as stages are behind it."""
    stage = rank.place["pp"]
    rank.add((5 - stage) * 1.7 * GIB + (stage == 3) * 0.9 * GIB, *HELD)
    rank.add(np.asarray(TOKENS)[rank.rows["shapes"]] * TOKEN_BYTES * 0.3 * (4 - stage), *PEAK)


def experts_of_unequal_load(rank: Rank) -> None:
    """Routers prefer some experts, always the same."""
    more = (0.05, 0.32, 0.0, 0.17, 0.24, 0.1, 0.02, 0.28)[rank.place["ep"] % 8]
    rank.add(np.asarray(TOKENS)[rank.rows["shapes"]] * TOKEN_BYTES * more, *PEAK)


def first_rank_does_more(rank: Rank) -> None:
    """It gathers checkpoints in its RAM and has other processes' contexts on its device."""
    rank.add(350 * MIB * (rank.rank == 0), "host_rss_bytes")
    rank.add(450 * MIB * (rank.rank == 0), "device_used_bytes")


def healthy(axes: dict[str, int], differ: Callable[[Rank], None] = nothing, per_node: int = 8) -> Fault:
    """A run without a fault."""
    return Fault(Mesh(axes, per_node), lambda rank: False, nothing, {}, healthy=differ)


HEALTHY: dict[str, Fault] = {
    "2 replicas": healthy({"dp": 2}),
    "4 replicas": healthy({"dp": 4}),
    "8 replicas": healthy({"dp": 8}, first_rank_does_more, 4),
    "2 stages": healthy({"pp": 2}, stages_of_different_size),
    "4 stages": healthy({"pp": 4}, stages_of_different_size),
    "4 stages of 2": healthy({"dp": 2, "pp": 4}, stages_of_different_size, 4),
    "2 stages of 4": healthy({"pp": 2, "tp": 4}, stages_of_different_size),
    "8 experts": healthy({"ep": 8}, experts_of_unequal_load),
}
"""Small ones, for a quick test."""
HEALTHY_TOO: dict[str, Fault] = {
    "4 replicas, RAM wanders": healthy({"dp": 4}),
    "4 stages of 4": healthy({"dp": 4, "pp": 4}, stages_of_different_size),
    "4 experts of 2": healthy({"dp": 2, "ep": 4}, experts_of_unequal_load, 4),
    "16 shards on 2 nodes": healthy({"fsdp": 16}, first_rank_does_more),
}


def outputs_of_each_step(rank: Rank) -> None:
    """1.3 MiB a step; the check of one replica came to it."""
    rank.add(rank.step * 1.3 * MIB, *HELD)
    if rank.place["dp"] == 1:
        rank.found("MG301", "outputs-accumulate", "schedule/gpipe.py", 64, "GPipe.logits")


def embedding(rank: Rank) -> None:
    """Its parameters with their states."""
    rank.add(5 * GIB, *HELD)
    rank.owners["parameters_bytes"] += 2 * GIB


def busy_expert(rank: Rank) -> None:
    """It gets nearly twice the tokens."""
    rank.add(np.asarray(TOKENS)[rank.rows["shapes"]] * TOKEN_BYTES * 0.9, *PEAK)


def gathered_weights(rank: Rank) -> None:
    """Kept between batches."""
    rank.add(2.5 * GIB, *HELD)
    rank.found("MG302", "alive-across-batches", "parallel/gather.py", 31, "Gather.whole")


def decoded_samples(rank: Rank) -> None:
    """2 MiB a step; one rank of the node has the finding."""
    rank.add(rank.step * 2 * MIB, "host_rss_bytes")
    if rank.rank % 4 == 1:
        rank.found("MG701", "host-growth", "data/decode.py", 77, "Decoder.seen")


def ring_buffers(rank: Rank) -> None:
    """Outside PyTorch's allocator."""
    rank.add(2.2 * GIB, "device_used_bytes")


def longer_samples(rank: Rank) -> None:
    """Its shard of the data has them."""
    rank.add(np.asarray(TOKENS)[rank.rows["shapes"]] * TOKEN_BYTES * 0.8, *PEAK)
    rank.tokens = [int(count * 1.8) for count in TOKENS]


def losses(rank: Rank) -> None:
    """Kept since the restart."""
    rank.add(rank.step * 3 * MIB, *HELD)
    rank.found("MG101", "retained-graph", "loop.py", 22, "Loop.losses")


FAULTY: dict[str, Fault] = {
    "last stage": Fault(
        Mesh({"dp": 2, "pp": 4}), lambda r: r.place["pp"] == 3, outputs_of_each_step, {"pp": 3}, "gpipe.py", 64,
        healthy=stages_of_different_size,
    ),
    "first stage": Fault(Mesh({"pp": 4, "tp": 2}), lambda r: r.place["pp"] == 0, embedding, {"pp": 0}),
    "one expert": Fault(
        Mesh({"dp": 4, "ep": 8}), lambda r: r.place["ep"] == 3, busy_expert, {"ep": 3}, healthy=experts_of_unequal_load
    ),
    "one tp rank": Fault(
        Mesh({"dp": 4, "tp": 4}), lambda r: r.place["tp"] == 1, gathered_weights, {"tp": 1}, "gather.py", 31
    ),
    "one node's loader": Fault(
        Mesh({"fsdp": 16}, 4, "n{}"), lambda r: r.node == "n2", decoded_samples, {"node": "n2"}, "decode.py", 77,
        healthy=first_rank_does_more,
    ),
    "a group's buffers": Fault(
        Mesh({"pp": 2, "dp": 4, "cp": 4}), lambda r: r.place["cp"] == 2, ring_buffers, {"cp": 2}
    ),
    "a longer batch": Fault(Mesh({"dp": 16}), lambda r: r.rank == 11, longer_samples, {"rank": 11}),
    "a leak after restart": Fault(
        Mesh({"dp": 8}), lambda r: r.rank == 6, losses, {"rank": 6}, "loop.py", 22, starts=2, faulty_starts=(1,),
        moves=True,
    ),
}  # fmt: skip


def verdicts_of(fault: Fault, *, batches: int, seed: int) -> tuple[list[AxisVerdict], tuple[int, ...]]:
    """Writes and reads a run: its verdicts, and the ranks that have the fault."""
    with tempfile.TemporaryDirectory() as folder:
        chosen = make_fleet(Path(folder), fault, batches=batches, seed=seed)
        return load_run([folder]).verdicts, chosen


def wrong_in(fleets: dict[str, Fault], *, batches: int, seed: int) -> list[str]:
    """The runs of which a verdict is wrong or missing, with what is told."""
    wrong = []
    for title, fault in fleets.items():
        verdicts, chosen = verdicts_of(fault, batches=batches, seed=seed)
        right = (
            all(score(fault, [each.to_json() for each in verdicts], chosen).values()) if fault.axes else not verdicts
        )
        if not right:
            wrong.append(f"{title} ({batches} batches, seed {seed}): {'; '.join(each.text for each in verdicts)}")
    return wrong


if __name__ == "__main__":
    for name, fleets in (("healthy", HEALTHY), ("healthy too", HEALTHY_TOO), ("faulty", FAULTY)):
        missed = []
        for seed in range(10):
            batches = 400 if name == "faulty" else (24, 60, 200, 400, 600)[seed % 5]
            missed += wrong_in(fleets, batches=batches, seed=seed)
        print(f"{name}: {10 * len(fleets) - len(missed)} of {10 * len(fleets)} right")
        print("".join(f"    {each}\n" for each in missed), end="")
