import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from memguard.recording.format import HEADER_BYTES, RECORD_BYTES
from memguard.report.rank_text import rank_lines
from memguard.report.runs import RunOnDisk, load_run
from memguard.report.text import render
from memguard.text.units import GIB, MIB
from tests.report import unseen_faults
from tests.report.planted_faults import FAULTS, FLOOR, Layout, Rank, make_run
from tests.report.unseen_faults import SETS
from tests.report.unseen_runs import READ

LAYOUTS = {
    "more replicas than experts": Layout(ranks=128),
    "as many experts as replicas": Layout(ranks=64),
}


def read(tmp_path: Path, fault: str | None, layout: Layout, *, seed: int = 1) -> tuple[RunOnDisk, tuple[int, ...]]:
    chosen = make_run(tmp_path, fault, layout=layout, batches=96, seed=seed)
    return load_run([str(tmp_path)]), chosen


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_named_with_axis_rank_and_line(tmp_path: Path, name: str, layout: Layout) -> None:
    """Among spikes, jitter and findings that other ranks have; and nothing else is named."""
    run, chosen = read(tmp_path, name, layout, seed=layout.ranks)
    (verdict,) = run.verdicts
    right = FAULTS[name]
    assert (dict(verdict.axes), verdict.ranks) == (right.axes, chosen)
    assert (Path(verdict.file or "").name, verdict.line) == (right.file, right.line)
    assert verdict.text in "\n".join(rank_lines(run))


def test_a_run_without_a_fault_has_no_verdict(tmp_path: Path) -> None:
    """Spikes, jitter and scattered findings follow no axis."""
    for seed in range(4):
        run, _ = read(tmp_path / str(seed), None, Layout(ranks=48), seed=seed)
        assert run.verdicts == []
        assert run.worst is not None and run.worst.finding is None


def test_growth_on_a_device_that_is_the_hosts_ram_is_named_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the CPU or a virtual device what a group keeps is host RAM too; a leak of the host's own is a second line."""
    planted = FAULTS["last stage"]

    def both(rank: Rank, start: int) -> None:
        planted.change(rank, start)
        rank.add(rank.number * 2.1 * MIB, "host_rss_bytes")

    def each(rank: Rank, start: int) -> None:
        both(rank, start)
        rank.finding("MG701", "host-growth", "data.py", 33, "Shards._cache")

    told = []
    for number, change in enumerate((both, each)):
        monkeypatch.setitem(FAULTS, "last stage", replace(planted, change=change))
        run, _ = read(tmp_path / str(number), "last stage", Layout(ranks=64))
        told.append([(verdict.kind, verdict.line) for verdict in run.verdicts])
        monkeypatch.undo()
    assert told == [[("grows", 88)], [("grows", 88), ("host-grows", 33)]]


@pytest.mark.parametrize("name", ["first stage", "one expert", "a group's buffers"])
def test_a_rank_that_left_no_record_hides_nothing(tmp_path: Path, name: str) -> None:
    """The others are compared without it; so are they in the steps that a rank which was killed early lacks."""
    chosen = make_run(tmp_path, name, layout=Layout(ranks=64), batches=96)
    empty, killed = [rank for rank in range(64) if rank not in chosen][5:7]
    for rank, rows in ((empty, 0), (killed, 20)):
        (path,) = (tmp_path / "memguard").glob(f"rank{rank:05d}-*.bin")
        os.truncate(path, HEADER_BYTES + rows * RECORD_BYTES)
    (verdict,) = load_run([str(tmp_path)]).verdicts
    assert (dict(verdict.axes), verdict.ranks) == (FAULTS[name].axes, chosen)


def test_peaks_that_are_higher_now_and_then_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a third of the steps is often; in one of a hundred is a spike, as all ranks have them."""

    def bursts(rank: Rank, start: int) -> None:
        often = np.random.default_rng(rank.rank).random(len(rank.rows)) < 0.33
        rank.add(np.where(often, 11 * GIB, 0), "allocated_peak_bytes", "active_peak_bytes")

    monkeypatch.setitem(FAULTS, "one expert", replace(FAULTS["one expert"], change=bursts))
    run, chosen = read(tmp_path, "one expert", Layout(ranks=64))
    (verdict,) = run.verdicts
    assert (verdict.kind, dict(verdict.axes), verdict.ranks) == ("peaks", {"ep": 2}, chosen)


def test_a_finding_that_one_rank_of_the_group_came_to_names_the_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checks are samples: not every rank's comes to what all of them do."""
    planted = FAULTS["one node's loader"]

    def one_has_it(rank: Rank, start: int) -> None:
        rank.add(rank.number * 3 * MIB, "host_rss_bytes")
        if rank.rank == 59:
            rank.finding("MG701", "host-growth", "data.py", 33, "Shards._cache")

    monkeypatch.setitem(FAULTS, "one node's loader", replace(planted, change=one_has_it))
    run, _ = read(tmp_path, "one node's loader", Layout(ranks=256))
    (verdict,) = run.verdicts
    assert dict(verdict.axes) == {"node": "7"} and verdict.line == 33
    assert verdict.text.endswith("`Shards._cache` in data.py:33 (MG701, found on rank 59)")


def everywhere(monkeypatch: pytest.MonkeyPatch, change: Callable[[Rank], None]) -> None:
    """Changes every rank of the run with an expert's fault, in place of that fault."""
    fault = replace(FAULTS["one expert"], who=lambda rank: True, change=lambda rank, start: change(rank))
    monkeypatch.setitem(FAULTS, "one expert", fault)


@pytest.mark.parametrize("nbytes", [int(2.5 * GIB), 0], ids=["one is higher", "none is"])
def test_what_differs_along_an_axis_hides_no_rank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nbytes: int) -> None:
    """Stages keep fewer micro-batches the later they are: one rank is compared with what is usual at its stage."""

    def change(rank: Rank) -> None:
        more = (3 - rank.place["pp"]) * GIB + (nbytes if rank.rank == 21 else 0)
        rank.add(more, "allocated_peak_bytes", "active_peak_bytes")

    everywhere(monkeypatch, change)
    run, _ = read(tmp_path, "one expert", Layout(ranks=128))
    told = [(each.kind, each.ranks, each.axes) for each in run.verdicts]
    assert told == ([("peaks", (21,), {"rank": 21})] if nbytes else [])
    assert not run.verdicts or 2.3 * GIB < (run.verdicts[0].bytes or 0) < 2.7 * GIB


def test_a_finding_of_two_ranks_of_a_node_is_the_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where they share a place on another axis; two ranks of two nodes have nothing in common."""
    told = []
    for number, ranks in enumerate([(57, 61), (57, 77)]):

        def change(rank: Rank, ranks: tuple[int, int] = ranks) -> None:
            if rank.rank in ranks:
                rank.finding("MG701", "host-growth", "data.py", 33, "Shards._cache")

        everywhere(monkeypatch, change)
        run, _ = read(tmp_path / str(number), "one expert", Layout(ranks=256))
        told.append([(each.kind, each.axes, each.ranks, each.line) for each in run.verdicts])
    assert told == [[("finding", {"node": "7"}, tuple(range(56, 64)), 33)], []]


def test_a_difference_of_two_per_cent_counts_among_many_ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """1.4 GiB of 80: on one rank of 128 it is no chance, on one of eight it may be."""

    def change(rank: Rank) -> None:
        rank.add(1.4 * GIB * (rank.rank == 6), *FLOOR)

    everywhere(monkeypatch, change)
    many, _ = read(tmp_path / "many", "one expert", Layout(ranks=128))
    few, _ = read(tmp_path / "few", "one expert", Layout(ranks=8, tp=2, pp=2))
    assert [(each.kind, each.ranks) for each in many.verdicts] == [("holds", (6,))]
    assert few.verdicts == []


def test_a_rank_that_was_killed_early_is_not_the_highest_for_that(tmp_path: Path) -> None:
    """Its few batches are others than those that the ranks are compared by."""

    def change(rank: Rank) -> None:
        early = rank.number < 20
        rank.add(3 * GIB * early, "allocated_peak_bytes", "active_peak_bytes")

    with pytest.MonkeyPatch.context() as patch:
        everywhere(patch, lambda rank: change(rank) if rank.rank == 9 else None)
        read(tmp_path, "one expert", Layout(ranks=64))
    (path,) = (tmp_path / "memguard").glob("rank00009-*.bin")
    os.truncate(path, HEADER_BYTES + 20 * RECORD_BYTES)
    assert load_run([str(tmp_path)]).verdicts == []


def test_the_sentence_names_the_group_the_rate_the_holder_and_the_line(tmp_path: Path) -> None:
    """As a colleague would say it."""
    run, _ = read(tmp_path, "last stage", Layout(ranks=64))
    (verdict,) = run.verdicts
    rate, around = verdict.bytes_per_step, verdict.text.partition(", 2.1")
    assert rate is not None and 2.05 * MIB < rate < 2.15 * MIB
    assert around[0] == "only pp=3 (the last stage; ranks 48-63) grows"
    assert around[2].endswith(" MiB a step, `outputs` in schedule.py:88 (MG301)")


def test_stage_and_expert_imbalance_is_mg603_with_its_reason(tmp_path: Path) -> None:
    """A stage by what it holds more of; an expert by elimination: the activations of more tokens."""
    run, chosen = read(tmp_path / "stage", "first stage", Layout(ranks=64))
    (stage,) = (finding for finding in run.summary.findings if finding.code == "MG603")
    assert stage.rank in chosen
    assert "The same holds for all of pp=0 (the first stage): ranks 0-15." in stage.message
    assert "parameters 21.0 GiB, 12.0 GiB elsewhere" in stage.message
    run, chosen = read(tmp_path / "expert", "one expert", Layout(ranks=64))
    (expert,) = (finding for finding in run.summary.findings if finding.code == "MG603")
    assert expert.rank in chosen
    assert "all of ep=2" in expert.message and "more tokens go to its experts" in expert.message
    assert "balance the router" in expert.advice


def test_json_has_verdicts_places_and_last_words(tmp_path: Path) -> None:
    """Each finding tells its rank's coordinates, and the group that has it alone."""
    run, chosen = read(tmp_path, "last stage", Layout(ranks=64))
    data = json.loads(json.dumps(run.to_json()))
    (verdict,) = data["verdicts"]
    assert verdict["axes"] == {"pp": 3} and verdict["ranks"] == list(chosen)
    assert data["ranks"][50]["coordinates"] == {"dp": 0, "tp": 2, "pp": 3, "ep": 0}
    assert data["ranks"][50]["last_word"].startswith("finished after 96 batches, peak ")
    found = [finding for finding in data["findings"] if finding["code"] == "MG301"]
    assert {finding["where"] for finding in found} == {"pp=3 (the last stage)"}
    assert all(finding["coordinates"]["pp"] == 3 for finding in found)
    everywhere = [finding for finding in data["findings"] if finding["code"] == "MG303"]
    assert {finding["where"] for finding in everywhere} == {None}


def test_ranks_without_coordinates_are_told_apart_by_node_and_by_themselves(tmp_path: Path) -> None:
    """Nothing need be declared for a single rank, or a node."""
    layout = Layout(ranks=64)
    layout.place = lambda rank: {"tp": rank % 4, "dp": 0, "pp": 0, "ep": 0}  # type: ignore[method-assign]
    run, chosen = read(tmp_path, "one node's loader", layout)
    (verdict,) = run.verdicts
    assert dict(verdict.axes) == {"node": "7"} and verdict.ranks == chosen
    assert verdict.text.startswith("only node 7 (ranks 56-63) grows in host RAM")
    assert "MG603" not in render(run.summary, ranks=64)


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_512_ranks_are_judged_in_5_seconds_and_500_mib(tmp_path: Path, name: str) -> None:
    """Of 2000 batches each, by a process of its own: axis, ranks and line are right."""
    chosen, right = make_run(tmp_path, name, batches=2000), FAULTS[name]
    command = [sys.executable, "-c", READ, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    seconds, mebibytes, (verdict,) = json.loads(done.stdout)
    assert (verdict["axes"], verdict["ranks"]) == (right.axes, list(chosen))
    assert (Path(verdict["file"]).name, verdict["line"]) == (right.file, right.line)
    assert seconds < 5 and mebibytes < 500


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(SETS))
def test_faults_by_another_hand_are_named(name: str) -> None:
    """Other meshes, curves, noise, restarts and missing ranks; benchmarks/results/unseen_faults.md has the scores."""
    assert unseen_faults.wrong_in(name) == []
