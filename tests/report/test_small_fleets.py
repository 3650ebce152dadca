from pathlib import Path

import pytest

from memguard.report.axis_verdicts import AxisVerdict
from memguard.report.runs import load_run
from memguard.text.units import MIB
from tests.report.small_fleets import FAULTY, HEALTHY, HEALTHY_TOO, healthy, make_fleet, verdicts_of, wrong_in
from tests.report.unseen_runs import HELD, Fault, Mesh, Rank


@pytest.mark.parametrize("batches", [24, 60, 200, 600])
def test_a_healthy_small_run_has_no_verdict(batches: int) -> None:
    """Of 2 to 16 ranks: jitter, warm-up, longer and shorter batches, RAM that wanders, stages of different size."""
    wrong = [each for seed in range(3) for each in wrong_in({**HEALTHY, **HEALTHY_TOO}, batches=batches, seed=seed)]
    assert wrong == []


@pytest.mark.parametrize("name", FAULTY)
def test_a_fault_among_few_ranks_is_named(name: str) -> None:
    """With axis, ranks and line, and nothing beside it."""
    wrong = [each for seed in range(2) for each in wrong_in({name: FAULTY[name]}, batches=400, seed=seed)]
    assert wrong == []


def losses(rank: Rank) -> None:
    """The first rank keeps them, 0.15 MiB a step."""
    if rank.rank == 0:
        rank.add(rank.step * 0.15 * MIB, *HELD)


def losses_as_found(rank: Rank) -> None:
    """A check came to it."""
    losses(rank)
    if rank.rank == 0:
        rank.found("MG101", "retained-graph", "loop.py", 22, "Loop.losses")


def told(verdicts: list[AxisVerdict]) -> list[tuple[str, tuple[int, ...], int | None]]:
    return [(each.kind, each.ranks, each.line) for each in verdicts]


def test_a_rank_that_grows_is_named_by_less_where_a_finding_says_so_too() -> None:
    """Below a thousandth of the device, growth alone is none."""
    alone, _ = verdicts_of(healthy({"dp": 8}, losses), batches=400, seed=3)
    found, _ = verdicts_of(healthy({"dp": 8}, losses_as_found), batches=400, seed=3)
    assert told(alone) == [] and told(found) == [("grows", (0,), 22)]


def test_one_ranks_finding_is_no_verdict_where_its_memory_is_as_the_others() -> None:
    """Checks are samples; in a run that is too short to tell what grows, the finding is all there is."""

    def change(rank: Rank) -> None:
        if rank.rank == 2:
            rank.found("MG301", "outputs-accumulate", "loop.py", 9, "kept")

    long, _ = verdicts_of(healthy({"dp": 4}, change), batches=200, seed=11)
    short, _ = verdicts_of(healthy({"dp": 4}, change), batches=12, seed=11)
    assert told(long) == [] and told(short) == [("finding", (2,), 9)]


def test_starts_of_one_millisecond_are_told_apart_by_the_launchers_count(tmp_path: Path) -> None:
    """A restart on another node is the newer one, however the node is called."""
    moved = Fault(Mesh({"dp": 2}, 1, "n{}"), lambda rank: False, lambda rank: None, {}, starts=2, moves=True)
    make_fleet(tmp_path, moved, batches=20, seed=1)
    for path in (tmp_path / "memguard").iterdir():
        rank, _, node = path.name.split("-", 2)
        path.rename(path.with_name(f"{rank}-20261129T000000000Z-{node}"))
    run = load_run([str(tmp_path)])
    assert [each.session["restart"] for each in run.ranks.values()] == [1, 1]
    assert [each.session["node"] for each in run.ranks.values()] == ["n3", "n10"]
