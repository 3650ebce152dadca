from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from memguard.recording.writer import RecordingWriter
from memguard.records.findings import Finding, Severity
from memguard.records.kept_floor import floor_of
from memguard.records.stats import BatchRecord, Stage
from memguard.report.rank_text import rank_lines
from memguard.report.runs import RunOnDisk, load_run
from memguard.report.text import ranks_text, render
from memguard.text.units import GIB, MIB
from tests.report.many_ranks import make_many

START = 1_790_000_000.0
SAME = [["x", [8, 128], "torch.int64"]]


def write(logdir: Path, rank: int, batches: list[dict[str, Any]], *lines: tuple[str, Any], **session: Any) -> None:
    """One rank's recording; a batch is what differs from an ordinary training batch."""
    told = {"rank": rank, "world_size": 4, "device": "cuda:0", "device_total_bytes": 24 * GIB, "node": "0", **session}
    writer = RecordingWriter(logdir, told)
    writer.line("shapes", {"id": 0, "shapes": SAME})
    for kind, line in lines:
        writer.line(kind, line)
    for number, batch in enumerate(batches):
        values: dict[str, Any] = {
            "batch": number,
            "stage": Stage.TRAIN,
            "optimizer_steps": number + 1,
            "time": START + number,
            "seconds": 1.0,
            "shapes": 0,
            "allocated_start_bytes": 2 * GIB,
            "allocated_peak_bytes": 3 * GIB,
            "allocated_end_bytes": 2 * GIB,
        }
        writer.record(BatchRecord(**{**values, **batch}))
    writer.close()


def text(run: RunOnDisk) -> str:
    return render(run.summary, ranks=len(run.ranks)) + "\n".join(rank_lines(run))


def test_the_heavy_rank_is_named_with_its_causes_and_the_line(tmp_path: Path) -> None:
    """Inputs, what it holds before the batch, and the finding that only it has; in words and as JSON."""
    make_many(tmp_path, ranks=16, batches=60, heavy=5, per_node=8)
    run = load_run([str(tmp_path)])
    told = text(run)
    assert "16 ranks on 2 nodes: peaks from 47.0 GiB (rank 0) to 64.7 GiB; the highest is rank 5, at train" in told
    worst = run.to_json()["worst_rank"]
    assert worst["rank"] == 5
    inputs, held, finding = worst["why"]
    assert inputs == "its inputs are 2.0 times as large: x [8, 768], in the same step elsewhere x [8, 384]"
    assert "more than the others before the batch begins" in held
    assert "/home/user/train.py:41 (losses, 6.00 GiB when reported)" in finding
    (imbalance,) = (each for each in run.summary.findings if each.code == "MG603")
    assert (imbalance.rank, imbalance.file, imbalance.line) == (5, "/home/user/train.py", 41)
    assert "fix MG101 in /home/user/train.py:41 first" in imbalance.advice
    assert f"MG101 retained-graph [rank {5}]" in told


def test_peaks_over_ranks_are_told_by_batch(tmp_path: Path) -> None:
    """Lowest, median and highest of each stretch, with the ranks they are of."""
    for rank in range(4):
        peaks = [(3 + (2 if rank == 2 and batch == 7 else 0)) * GIB + rank * MIB for batch in range(12)]
        write(tmp_path, rank, [{"allocated_peak_bytes": peak} for peak in peaks])
    stretches = load_run([str(tmp_path)]).to_json()["over_ranks"]
    assert len(stretches) == 12
    eighth = next(each for each in stretches if each["first_batch"] == 7)
    assert (eighth["max_rank"], eighth["max_bytes"]) == (2, 5 * GIB + 2 * MIB)
    assert (eighth["min_rank"], eighth["min_bytes"]) == (0, 3 * GIB)
    assert eighth["median_bytes"] == 3 * GIB + 2 * MIB


def test_ranks_are_compared_in_the_same_step_though_their_numbers_drifted(tmp_path: Path) -> None:
    """A rank that validates alone has other batch numbers, and its peak is compared with the same optimizer step."""
    spike = {"allocated_peak_bytes": 9 * GIB}
    alone = [{"stage": Stage.VALIDATION, "optimizer_steps": 3}] * 5
    after = [{"optimizer_steps": 4 + step} for step in range(4)]
    write(tmp_path, 0, [*[{}] * 3, *alone, *after[:2], {**after[2], **spike}, after[3]])
    for rank in (1, 2, 3):
        write(tmp_path, rank, [*[{}] * 3, *after[:2], {**after[2], "allocated_peak_bytes": 8 * GIB}, after[3]])
    worst = load_run([str(tmp_path)]).worst
    assert worst is not None and worst.rank == 0
    assert (worst.batch, worst.median_bytes) == (10, 8 * GIB)


def test_a_peak_in_a_stage_of_its_own_is_said_so(tmp_path: Path) -> None:
    """What only one rank does, as a checkpoint that it gathers, is named by its stage."""
    write(tmp_path, 0, [{}, {}, {"stage": Stage.CHECKPOINT, "optimizer_steps": 2, "allocated_peak_bytes": 9 * GIB}])
    for rank in (1, 2, 3):
        write(tmp_path, rank, [{}, {}])
    worst = load_run([str(tmp_path)]).worst
    assert worst is not None
    assert "its peak is in checkpoint, which no other rank does" in worst.causes


def test_state_that_one_rank_holds_more_of_is_named(tmp_path: Path) -> None:
    """An uneven split of a model shows in the owners of what is held before the batch."""
    own = {"batch": 0, "parameters_bytes": GIB, "gradients_bytes": GIB, "buffers_bytes": 0}
    for rank in range(4):
        more = 4 * GIB if rank == 3 else 0
        start = {"allocated_start_bytes": 2 * GIB + more, "allocated_peak_bytes": 3 * GIB + more}
        write(tmp_path, rank, [start] * 3, ("owners", {**own, "optimizer_bytes": GIB + more}))
    worst = load_run([str(tmp_path)]).worst
    assert worst is not None and worst.finding is not None
    (held,) = worst.causes
    assert worst.finding.advice == "split the model, or the state of its optimizer, more evenly over the ranks."
    assert held == (
        "it holds 4.00 GiB more than the others before the batch begins: optimizer state 5.00 GiB, 1.00 GiB elsewhere"
    )


def test_a_stage_that_holds_more_of_the_model_is_told_from_its_first_step_on(tmp_path: Path) -> None:
    """The stages of a pipeline: in the step that makes the optimizer's state, nothing of it was held before."""
    for rank in range(4):
        own = GIB if rank == 1 else GIB // 8
        owners = {"batch": 0, "parameters_bytes": own, "gradients_bytes": own, "optimizer_bytes": 2 * own}
        write(tmp_path, rank, [{"allocated_peak_bytes": 2 * GIB + 4 * own}] * 3, ("owners", owners))
    worst = load_run([str(tmp_path)]).worst
    assert worst is not None and worst.rank == 1
    assert worst.causes[0].startswith("it holds more of the model: optimizer state 2.00 GiB, 256 MiB elsewhere; ")


def test_ranks_on_the_wrong_device_are_named_as_the_cause(tmp_path: Path) -> None:
    """MG602 of other ranks of that node: what they hold on the worst rank's device."""
    for rank in range(4):
        visit = Finding(
            code="MG602",
            name="wrong-device",
            severity=Severity.WARNING,
            message=f"rank {rank} works on cuda:{rank} and holds 512 MiB on cuda:0.",
            advice="set the device first.",
            holder="cuda:0",
            bytes=512 * MIB,
            rank=rank,
        )
        lines = [("finding", visit.to_json())] if rank else []
        peak = {"allocated_peak_bytes": (5 if rank == 0 else 3) * GIB}
        write(tmp_path, rank, [peak], *lines, device=f"cuda:{rank}")
    run = load_run([str(tmp_path)])
    assert run.worst is not None
    assert "ranks 1-3 hold 1.50 GiB on its device cuda:0 (MG602)" in run.worst.causes
    assert text(run).count("MG602 wrong-device [") == 1 and "1 warning;" in text(run)
    assert "MG602 wrong-device [ranks 1-3]" in text(run)


def test_who_fell_is_told_first(tmp_path: Path) -> None:
    """The rank out of memory, the one killed, and those that stopped because of it."""
    oom = {"batch": 1, "stage": "train", "cause": "activations do not fit", "rank": 2, "caught": False}
    end = {"reason": "an exception: RuntimeError"}
    write(tmp_path, 0, [{}] * 2, ("peer", {"rank": 2, "batch": 1}), ("end", end))
    write(tmp_path, 1, [{}] * 2)
    write(tmp_path, 2, [{}], ("oom", oom), ("end", {"reason": "an exception: OutOfMemoryError"}))
    write(tmp_path, 3, [{}] * 2, ("peer", {"rank": 2, "batch": 1}), ("end", end))
    run = load_run([str(tmp_path)])
    told = text(run)
    assert "Out of memory on rank 2 at batch 1: activations do not fit" in told
    assert "Rank 2 ran out of memory in train batch 1: activations do not fit" in told
    assert "Rank 1 ended without a word after batch 1" in told
    assert "Note: rank 1: the run ended without a word" in told
    assert run.worst is not None and "it ran out of memory: activations do not fit" not in run.worst.causes
    assert "Ranks 0, 3 stopped because rank 2 fell." in told
    assert [each["fallen_peers"] for each in run.to_json()["ranks"]] == [[2], [], [], [2]]


def headline(run: RunOnDisk) -> str:
    return text(run).splitlines()[0]


def test_a_run_that_failed_begins_with_the_rank_that_failed(tmp_path: Path) -> None:
    """The first rank that failed by itself, whichever number it has; not the last rank's end."""
    end = {"reason": "an exception: RuntimeError"}
    write(tmp_path, 0, [{}] * 3, ("peer", {"rank": 2, "what": "an exception: ValueError"}), ("end", end))
    write(tmp_path, 1, [{}] * 3)
    write(tmp_path, 2, [{}] * 2, ("end", {"reason": "an exception: ValueError"}))
    write(tmp_path, 3, [{}] * 3, ("end", {"reason": "finished"}))
    run = load_run([str(tmp_path)])
    assert headline(run).endswith("no warnings; it ended with an exception: ValueError on rank 2.")
    told = text(run)
    assert "Rank 2 ended with an exception: ValueError after batch 1." in told
    assert "Rank 0 stopped because rank 2 fell." in told
    assert "Rank 0 ended with" not in told
    assert run.to_json()["ended"] == "an exception: ValueError on rank 2"


def test_ranks_with_unequal_numbers_of_batches_are_told(tmp_path: Path) -> None:
    """One that finished with fewer, before the other failed; it did not fall."""
    write(tmp_path, 1, [{}] * 2, ("end", {"reason": "finished"}))
    end = {"reason": "an exception: RuntimeError"}
    write(tmp_path, 0, [{}] * 3, ("peer", {"rank": 1, "what": "finished"}), ("end", end))
    run = load_run([str(tmp_path)])
    assert "it ended with an exception: RuntimeError on rank 0." in headline(run)
    told = text(run)
    assert "Rank 1 had finished by then, after 2 training batches; rank 0 had 3. Give every rank as many" in told
    assert "fell" not in told
    assert [each["fallen_peers"] for each in run.to_json()["ranks"]] == [[], []]


def test_a_rank_that_saw_another_one_fall_is_not_told_as_silent(tmp_path: Path) -> None:
    """The launcher killed it after its word; RAM is blamed where it may have been short."""
    for rank, peers in ((0, [("peer", {"rank": 1, "what": "killed"})]), (1, [])):
        few = {"host_rss_bytes": GIB // 2}
        write(tmp_path, rank, [few, few], *peers, world_size=2, host_limit_bytes=24 * GIB)
    told = text(load_run([str(tmp_path)]))
    assert "a rank ended without a word (killed?) or still runs" in told.splitlines()[0]
    assert "Rank 1 ended without a word after batch 1" in told and "All ranks" not in told
    assert "Rank 0 ended without a word" not in told and "Rank 0 stopped because rank 1 fell." in told
    assert "rank 0: the run stopped at batch 1 (train): rank 1 fell before" in told
    assert "of a limit of 24.0 GiB: it was killed from outside, or it still runs" in told


def test_equal_ranks_are_told_in_a_line(tmp_path: Path) -> None:
    """No highest rank among them, and no table of equal rows."""
    for rank in range(4):
        write(tmp_path, rank, [{}] * 12, ("end", {"reason": "finished"}))
    told = text(load_run([str(tmp_path)]))
    assert "4 ranks: all peak at 3.00 GiB." in told
    assert "the highest is" not in told and "Peaks over the ranks by batch" not in told


def test_a_peak_has_one_name(tmp_path: Path) -> None:
    """That of the summary: the batch within its epoch, not the number of the record."""
    for rank in range(2):
        place = {"epoch": 2, "index": 1, "allocated_peak_bytes": (4 + rank) * GIB}
        write(tmp_path, rank, [{}, {}, place])
    told = text(load_run([str(tmp_path)]))
    assert "Peak: 5.00 GiB allocated of 24.0 GiB (21%), at train batch 1 (epoch 2, input x [8, 128])." in told
    assert "the highest is rank 1, at train batch 1 (epoch 2), where" in told


def test_directories_of_several_nodes_are_one_run(tmp_path: Path) -> None:
    """In each directory the newest run is taken; missing ranks and strangers are told."""
    write(tmp_path / "a" / "old", 0, [{"allocated_peak_bytes": 20 * GIB}], run="torchrun-1")
    for rank in (0, 1):
        write(tmp_path / "a" / "new", rank, [{}], run="torchrun-2")
    write(tmp_path / "b", 2, [{"allocated_peak_bytes": 6 * GIB}], run="torchrun-2", node="1")
    half = load_run([str(tmp_path / "a")])
    assert any(note.startswith("2 of 4 ranks are here") for note in half.summary.notes)
    whole = load_run([str(tmp_path / "a"), str(tmp_path / "b")])
    assert sorted(whole.ranks) == [0, 1, 2]
    assert whole.worst is not None and whole.worst.rank == 2
    write(tmp_path / "c", 3, [{}], run="torchrun-7")
    mixed = load_run([str(tmp_path / "a"), str(tmp_path / "b"), str(tmp_path / "c")])
    assert any("different runs: torchrun-2, torchrun-7" in note for note in mixed.summary.notes)


def test_restarts_of_a_rank_are_one_rank(tmp_path: Path) -> None:
    """All starts count for the peak; the newest is compared, and how often it began anew is told."""
    write(tmp_path, 0, [{"allocated_peak_bytes": 9 * GIB}])
    write(tmp_path, 0, [{}, {}], restart=1)
    write(tmp_path, 1, [{}, {}], restart=1)
    first = load_run([str(tmp_path)]).to_json()["ranks"][0]
    assert (first["starts"], first["restart"], first["peak"]["allocated_bytes"]) == (2, 1, 9 * GIB)
    assert (first["batches"], first["node"]) == (3, "0")


def test_a_rank_on_the_host_is_compared_by_its_ram(tmp_path: Path) -> None:
    """Where no device tells, resident memory is what ranks are compared by."""
    unknown = {"allocated_start_bytes": None, "allocated_peak_bytes": None, "allocated_end_bytes": None}
    for rank in range(2):
        write(tmp_path, rank, [{**unknown, "host_rss_bytes": (1 + rank) * GIB}], device="cpu")
    worst = load_run([str(tmp_path)]).worst
    assert worst is not None and (worst.rank, worst.peak_bytes, worst.lowest_bytes) == (1, 2 * GIB, GIB)


def test_a_long_run_is_compared_in_bounded_memory(tmp_path: Path) -> None:
    """However many batches there are, the highest of each stretch is kept."""
    for rank in range(2):
        spike = {4321: {"allocated_peak_bytes": 7 * GIB}} if rank else {}
        write(tmp_path, rank, [spike.get(batch, {}) for batch in range(5000)])
    run = load_run([str(tmp_path)])
    assert run.spread is not None and run.spread.table.shape == (2, 2501)
    assert run.worst is not None and (run.worst.rank, run.worst.batch, run.worst.median_bytes) == (1, 4321, 3 * GIB)


@pytest.mark.parametrize(
    ("ranks", "told"),
    [([3], "rank 3"), ([1, 0], "ranks 0, 1"), ([4, 5, 6, 9], "ranks 4-6, 9"), (list(range(0, 40, 2)), "and 12 more")],
)
def test_many_ranks_are_named_in_few_words(ranks: list[int], told: str) -> None:
    """Neighbours are joined, and a long list ends in a number."""
    assert told in ranks_text(ranks)


@pytest.mark.parametrize("seed", range(6))
def test_a_long_trainings_floor_is_that_of_each_batch(seed: int, tmp_path: Path) -> None:
    """All but the first and last batches are judged as one array: with the same rise, and the same word on falls."""
    made = np.random.default_rng(seed)
    ends = 10 * GIB + np.cumsum(made.integers(-2, 3, 300)) * 32 * MIB * (seed % 3) + np.arange(300) * MIB
    batches = [{"allocated_end_bytes": int(end), "allocated_start_bytes": int(end)} for end in ends]
    write(tmp_path, 0, batches)
    told = load_run([str(tmp_path)]).summary.stages[Stage.TRAIN].kept
    slow = floor_of(Stage.TRAIN, ((number, int(end), int(end), number + 1) for number, end in enumerate(ends)))
    assert told is not None
    assert (told.from_bytes, told.to_bytes, told.fell) == (slow.from_bytes, slow.to_bytes, slow.fell)
