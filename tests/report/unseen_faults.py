"""Runs of 512 ranks with one asymmetric fault each, written by somebody who had not read the verdict by axis.

Against `planted_faults` the layouts, the shapes of the curves, the noise and what is missing differ: growth comes in
steps, saturates or begins late; ranks have warm-ups, drifts, validations and floors of their own; some ranks left no
file, one was killed, nodes have names and sixteen or four GPUs, pipeline stages lie inside a replica. The third set was
written by one who had read the verdict's code; in it healthy ranks differ too, along an axis, by node or by shard.

``python -m tests.report.unseen_faults first`` (or ``second``, ``third``) writes each run, reads it in a process of its
own, and prints whether axis, ranks and line are right, with seconds and MiB. Each set was scored before anything was
mended for it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from memguard.records.stats import STAGES, Stage
from memguard.text.units import GIB, MIB
from tests.report.unseen_runs import HELD, PEAK, READ, TOKEN_BYTES, TOKENS, Fault, Mesh, Rank, make_run, score

# ---- the first set


def embedding_and_its_states(rank: Rank) -> None:
    """More parameters from the start, their optimizer states after the first step."""
    rank.add(np.where(rank.step > 0, 7 * GIB, 2.3 * GIB), *HELD)
    rank.owners["parameters_bytes"] += int(2.3 * GIB)
    rank.owners["optimizer_bytes"] += int(4.7 * GIB)


def kept_at_each_evaluation(rank: Rank) -> None:
    """A staircase; not every rank's check came to it."""
    rank.add(rank.step // 50 * 96 * MIB, *HELD)
    if rank.own.random() < 0.8:
        rank.found("MG301", "outputs-accumulate", "evaluation.py", 140, "Evaluator.predictions")


def popular_expert(rank: Rank) -> None:
    """The router comes to prefer it, and stays there."""
    share = 1.1 * (1 - np.exp(-rank.step / 300))
    rank.add(np.asarray(TOKENS)[rank.rows["shapes"]] * TOKEN_BYTES * share, *PEAK)


def gathered_logits(rank: Rank) -> None:
    """Held between batches on the part that computes the loss."""
    rank.add(3.2 * GIB + rank.own.integers(0, 90 * MIB, len(rank.rows)), *HELD)
    rank.found("MG302", "alive-across-batches", "parallel/loss.py", 57, "VocabLoss.full_logits")


def slowing_cache(rank: Rank) -> None:
    """Grows like the number of distinct samples seen; one rank of the node has the finding."""
    rank.add(np.sqrt(rank.step) * 110 * MIB * rank.own.uniform(0.8, 1.2), "host_rss_bytes")
    if rank.rank % 16 == 5:
        rank.found("MG701", "host-growth", "data/shards.py", 212, "ShardReader._decoded")


def late_communicator(rank: Rank) -> None:
    """Its first use in a later phase takes buffers outside the allocator."""
    rank.add(np.where(rank.step >= 700, 1.6 * GIB, 0), "device_used_bytes")


def sometimes_packed_longer(rank: Rank) -> None:
    """Two of five of its batches are of twice the length."""
    chosen = rank.own.random(len(rank.rows)) < 0.4
    more = np.where(chosen, np.asarray(TOKENS)[rank.rows["shapes"]], 0)
    rank.rows["shapes"] += np.where(chosen, len(TOKENS), 0).astype("<i4")
    rank.tokens += [2 * count for count in TOKENS]
    rank.add(more * TOKEN_BYTES, *PEAK)


def leak_with_partial_frees(rank: Rank) -> None:
    """Grows by half a MiB a batch, and gives back a third now and then."""
    grown, saw = rank.step * 0.7 * MIB, (rank.step % 137) * 0.9 * MIB
    rank.add(grown + saw, *HELD)
    rank.found("MG101", "retained-graph", "loop.py", 71, "Loop.history")


FIRST: dict[str, Fault] = {
    "first stage": Fault(
        Mesh({"pp": 8, "fsdp": 16, "tp": 4}), lambda r: r.place["pp"] == 0, embedding_and_its_states, {"pp": 0}
    ),
    "last stage": Fault(
        Mesh({"dp": 32, "pp": 4, "tp": 4}, 16, "a{:03d}"), lambda r: r.place["pp"] == 3, kept_at_each_evaluation,
        {"pp": 3}, "evaluation.py", 140,
    ),
    "one expert": Fault(
        Mesh({"dp": 8, "fsdp": 8, "ep": 8}, 4), lambda r: r.place["ep"] == 5, popular_expert, {"ep": 5}
    ),
    "one tp rank": Fault(
        Mesh({"dp": 16, "pp": 2, "cp": 2, "tp": 8}), lambda r: r.place["tp"] == 0, gathered_logits, {"tp": 0},
        "loss.py", 57,
    ),
    "one node's loader": Fault(
        Mesh({"dp": 32, "pp": 4, "tp": 4}, 16, "a{:03d}"), lambda r: r.node == "a007", slowing_cache, {"node": "a007"},
        "shards.py", 212,
    ),
    "a group's buffers": Fault(
        Mesh({"pp": 6, "dp": 20, "tp": 4}), lambda r: r.place["pp"] == 2, late_communicator, {"pp": 2}
    ),
    "a longer batch": Fault(
        Mesh({"pp": 8, "fsdp": 16, "tp": 4}), lambda r: r.rank == 201, sometimes_packed_longer, {"rank": 201}
    ),
    "a leak after restart": Fault(
        Mesh({"pp": 6, "dp": 20, "tp": 4}), lambda r: r.rank == 333, leak_with_partial_frees, {"rank": 333},
        "loop.py", 71, starts=3, faulty_starts=(2,), moves=True,
    ),
}  # fmt: skip


# ---- the second set


def more_in_flight(rank: Rank) -> None:
    """Its schedule holds four more micro-batches at the peak; nothing stays."""
    rank.add(np.asarray(TOKENS)[rank.rows["shapes"]] * TOKEN_BYTES * 0.9, *PEAK)


def growth_that_slows(rank: Rank) -> None:
    """An unbounded dictionary of keys that become rarer; both starts have it."""
    rank.add(np.log1p(rank.step / 40) * 700 * MIB, *HELD)
    rank.found("MG304", "module-state-growth", "schedules/interleaved.py", 301, "Stage.outputs_by_key")


def bursts_of_tokens(rank: Rank) -> None:
    """Most batches are as elsewhere; in a third the expert gets three times as many."""
    burst = rank.own.random(len(rank.rows)) < 0.33
    rank.add(np.where(burst, np.asarray(TOKENS)[rank.rows["shapes"]] * TOKEN_BYTES * 2, 0), *PEAK)


def small_leak(rank: Rank) -> None:
    """A tenth of a MiB with each batch, below the noise of any single one."""
    rank.add(rank.step * 0.12 * MIB, *HELD)
    rank.found("MG305", "global-growth", "parallel/layers.py", 93, "STATS")


def cache_of_each_epoch(rank: Rank) -> None:
    """A jump with each epoch; one of the node's ranks has left no file."""
    rank.add(rank.step // 400 * 1.9 * GIB, "host_rss_bytes")
    rank.found("MG701", "host-growth", "data/epochs.py", 31, "Epochs.open")


def creeping_workspaces(rank: Rank) -> None:
    """Taken bit by bit while shapes are met for the first time."""
    rank.add(np.minimum(rank.step / 500, 1.0) * 2.4 * GIB, "device_used_bytes")


def a_little_longer(rank: Rank) -> None:
    """Each of its batches is longer by a quarter."""
    rank.add(np.asarray(TOKENS)[rank.rows["shapes"]] * TOKEN_BYTES * 0.25, *PEAK)
    rank.tokens = [count + count // 4 for count in TOKENS]


def leak_of_a_stage_from_the_middle(rank: Rank) -> None:
    """After the restart, from the middle of the run."""
    rank.add(np.maximum(rank.step - len(rank.rows) * 2 // 5, 0) * 1.5 * MIB, *HELD)
    rank.found("MG102", "recurrent-graph", "model/memory.py", 44, "Memory.state")


SECOND: dict[str, Fault] = {
    "first stage": Fault(
        Mesh({"dp": 16, "pp": 8, "cp": 4}, 8, "n-{}"), lambda r: r.place["pp"] == 0, more_in_flight, {"pp": 0}
    ),
    "last stage": Fault(
        Mesh({"pp": 16, "dp": 4, "tp": 8}), lambda r: r.place["pp"] == 15, growth_that_slows, {"pp": 15},
        "interleaved.py", 301, starts=2, faulty_starts=(0, 1), moves=True,
    ),
    "one expert": Fault(
        Mesh({"pp": 2, "dp": 4, "ep": 64}, 16), lambda r: r.place["ep"] == 40, bursts_of_tokens, {"ep": 40}
    ),
    "one tp rank": Fault(
        Mesh({"pp": 4, "tp": 4, "fsdp": 32}), lambda r: r.place["tp"] == 2, small_leak, {"tp": 2}, "layers.py", 93
    ),
    "one node's loader": Fault(
        Mesh({"fsdp": 128, "tp": 4}, 4, "host{:02d}.rack"), lambda r: r.node == "host03.rack", cache_of_each_epoch,
        {"node": "host03.rack"}, "epochs.py", 31,
    ),
    "a group's buffers": Fault(
        Mesh({"dp": 8, "pp": 4, "cp": 2, "tp": 8}), lambda r: r.place["pp"] == 1 and r.place["cp"] == 1,
        creeping_workspaces, {"pp": 1, "cp": 1},
    ),
    "a longer batch": Fault(Mesh({"dp": 512}, 8, "n-{}"), lambda r: r.rank == 77, a_little_longer, {"rank": 77}),
    "a leak after restart": Fault(
        Mesh({"pp": 5, "dp": 24, "tp": 4}), lambda r: r.place["pp"] == 4, leak_of_a_stage_from_the_middle, {"pp": 4},
        "memory.py", 44, starts=2, faulty_starts=(1,),
    ),
}  # fmt: skip
# ---- the third set: healthy ranks differ along an axis, by node or by shard


def more_micro_batches_in_early_stages(rank: Rank) -> None:
    """As in any schedule of one forward, one backward: each stage keeps those of the stages behind it."""
    behind = 1 - rank.place["pp"] / 16
    rank.add(np.asarray(TOKENS)[rank.rows["shapes"]] * TOKEN_BYTES * 0.6 * behind, *PEAK)


def master_weights_of_an_embedding(rank: Rank) -> None:
    """Made when the optimizer first steps, kept from then on."""
    rank.add(np.where(rank.step > 30, 2.8 * GIB, 0), *HELD)


def caches_that_fill(rank: Rank) -> None:
    """A bounded cache on every rank, full in the middle of the run."""
    rank.add(np.minimum(rank.step / 900, 1.0) * 150 * MIB * rank.own.uniform(0.7, 1.3), *HELD)


def losses_with_graphs(rank: Rank) -> None:
    """Some 0.4 MiB a step; a few ranks elsewhere have the finding for a list of their own."""
    rank.add(np.cumsum(rank.rows["stage"] == STAGES.index(Stage.TRAIN)) * 0.4 * MIB, *HELD)
    rank.found("MG101", "retained-graph", "schedule/last.py", 77, "Schedule.losses")


def one_expert_of_one_stage(rank: Rank) -> None:
    """Gets most of the tokens in three of five batches."""
    busy = rank.own.random(len(rank.rows)) < 0.6
    rank.add(np.where(busy, np.asarray(TOKENS)[rank.rows["shapes"]] * TOKEN_BYTES * 0.8, 0), *PEAK)


def uneven_shards(rank: Rank) -> None:
    """The first shards have a row more."""
    rank.add(300 * MIB * (rank.place["fsdp"] < 10), *HELD)


def gathered_sequence(rank: Rank) -> None:
    """Kept between batches; three in ten checks came to it."""
    rank.add(1.9 * GIB, *HELD)
    if rank.own.random() < 0.3:
        rank.found("MG302", "alive-across-batches", "parallel/sequence.py", 66, "Gather.whole")


def pages_of_a_first_epoch(rank: Rank) -> None:
    """Every process's RAM rises while files are read for the first time."""
    rank.add(np.minimum(rank.step / 400, 1.0) * 600 * MIB * rank.own.uniform(0.8, 1.2), "host_rss_bytes")


def slow_leak_of_a_loader(rank: Rank) -> None:
    """Some 130 KiB a step, found on two of its eight ranks."""
    rank.add(rank.step * 0.13 * MIB, "host_rss_bytes")
    if rank.rank % 8 < 2:
        rank.found("MG701", "host-growth", "data/tokens.py", 118, "Tokens.seen")


def contexts_of_other_processes(rank: Rank) -> None:
    """The first device of a node has them."""
    rank.add(600 * MIB * (rank.rank % 8 == 0), "device_used_bytes")


def buffers_of_one_group(rank: Rank) -> None:
    """From the first batch on."""
    rank.add(1.3 * GIB, "device_used_bytes")


def now_and_then_a_long_document(rank: Rank) -> None:
    """One batch in six is more than twice as long."""
    chosen = rank.own.random(len(rank.rows)) < 0.17
    more = np.where(chosen, np.asarray(TOKENS)[rank.rows["shapes"]] * 1.2, 0)
    rank.rows["shapes"] += np.where(chosen, len(TOKENS), 0).astype("<i4")
    rank.tokens += [int(2.2 * count) for count in TOKENS]
    rank.add(more * TOKEN_BYTES, *PEAK)


def statistics_of_one_replica(rank: Rank) -> None:
    """A quarter of a MiB a step, of which a fifth goes with each epoch."""
    rank.add(rank.step * 0.25 * MIB - rank.step // 400 * 20 * MIB, *HELD)
    rank.found("MG305", "global-growth", "hooks/stats.py", 19, "HISTORY")


THIRD: dict[str, Fault] = {
    "first stage": Fault(
        Mesh({"dp": 4, "pp": 16, "tp": 8}, 8, "node-{:03d}"), lambda r: r.place["pp"] == 0,
        master_weights_of_an_embedding, {"pp": 0}, healthy=more_micro_batches_in_early_stages,
    ),
    "last stage": Fault(
        Mesh({"dp": 16, "cp": 2, "pp": 8, "tp": 2}), lambda r: r.place["pp"] == 7, losses_with_graphs, {"pp": 7},
        "last.py", 77, healthy=caches_that_fill,
    ),
    "one expert": Fault(
        Mesh({"dp": 4, "pp": 2, "ep": 64}, 16, "r{:02d}"), lambda r: r.place["pp"] == 1 and r.place["ep"] == 13,
        one_expert_of_one_stage, {"pp": 1, "ep": 13}, healthy=more_micro_batches_in_early_stages,
    ),
    "one tp rank": Fault(
        Mesh({"fsdp": 64, "tp": 8}), lambda r: r.place["tp"] == 7, gathered_sequence, {"tp": 7}, "sequence.py", 66,
        healthy=uneven_shards,
    ),
    "one node's loader": Fault(
        Mesh({"dp": 128, "pp": 4}, 8, "gpu-{:04d}-b"), lambda r: r.node == "gpu-0041-b", slow_leak_of_a_loader,
        {"node": "gpu-0041-b"}, "tokens.py", 118, healthy=pages_of_a_first_epoch,
    ),
    "a group's buffers": Fault(
        Mesh({"dp": 16, "ep": 8, "cp": 4}), lambda r: r.place["ep"] == 6, buffers_of_one_group, {"ep": 6},
        healthy=contexts_of_other_processes,
    ),
    "a longer batch": Fault(
        Mesh({"pp": 4, "dp": 32, "tp": 4}), lambda r: r.rank == 300, now_and_then_a_long_document, {"rank": 300},
        healthy=more_micro_batches_in_early_stages,
    ),
    "a leak after restart": Fault(
        Mesh({"dp": 256, "tp": 2}), lambda r: r.place["dp"] == 50, statistics_of_one_replica, {"dp": 50},
        "stats.py", 19, starts=2, faulty_starts=(1,), healthy=caches_that_fill,
    ),
}  # fmt: skip
SETS = {"first": FIRST, "second": SECOND, "third": THIRD}


def wrong_in(name: str, batches: int = 2000) -> list[str]:
    """Writes and reads each run of a set, prints what was right, and returns those where something was not."""
    wrong = []
    for title, fault in SETS[name].items():
        with tempfile.TemporaryDirectory() as folder:
            chosen = make_run(Path(folder), fault, batches=batches)
            done = subprocess.run([sys.executable, "-c", READ, folder], capture_output=True, text=True, check=True)
        seconds, mebibytes, verdicts = json.loads(done.stdout)
        right = score(fault, verdicts, chosen)
        missed = [word for word, is_right in right.items() if not is_right]
        told = "right" if not missed else f"WRONG: {', '.join(missed)}"
        print(f"{title:22} {told}; {seconds:.1f} s, {mebibytes:.0f} MiB", flush=True)
        if missed:
            wrong.append(title)
            print("".join(f"    {each['text']}\n" for each in verdicts), end="")
    return wrong


if __name__ == "__main__":
    wrong_in(sys.argv[1], *map(int, sys.argv[2:]))
