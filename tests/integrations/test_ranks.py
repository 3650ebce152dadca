"""Three or four ranks under torchrun, as a user starts them; what they leave is read as a user reads it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from memguard.recording.reader import Recording, find_recordings
from memguard.report.rank_text import rank_lines
from memguard.report.runs import load_run
from tests.tensorboard_plugin.serving import Server

PROGRAM = Path(__file__).with_name("ranks_program.py")
ROOT = PROGRAM.parents[2]
Launch = Callable[..., "tuple[list[dict[str, Any]], subprocess.CompletedProcess[str]]"]


def launch(kind: str, *arguments: str, ranks: int = 4, cwd: Path | None = None) -> tuple[list[dict[str, Any]], Any]:
    """What each rank printed, and how the launcher ended."""
    clean = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE", "MEMGUARD_LOGDIR")}
    command = [sys.executable, "-W", "ignore", "-m", "torch.distributed.run", "--nproc-per-node", str(ranks)]
    command += ["--no-python", sys.executable, "-W", "ignore", str(PROGRAM), kind, *arguments]
    env = {**clean, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env, cwd=cwd, timeout=300)
    told = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return sorted(told, key=lambda each: each["rank"]), done


@pytest.mark.long
def test_the_heavy_rank_and_its_line_are_named(tmp_path: Path) -> None:
    """Ranks that were told no directory write into one; report and tab name the rank that leaks, and where."""
    told, done = launch("heavy", "-", ranks=3, cwd=tmp_path)
    assert (len(told), done.returncode) == (3, 0), done.stderr
    (folder,) = (tmp_path / "memguard-runs").iterdir()
    assert folder.name.startswith("torchrun-")
    assert len(list(folder.glob("memguard/rank0000?-*-node0.bin"))) == 3
    run = load_run([str(tmp_path)])
    assert run.worst is not None and run.worst.rank == 2
    (imbalance,) = (each for each in run.summary.findings if each.code == "MG603")
    line = 1 + PROGRAM.read_text().splitlines().index(
        "        kept.append(torch.ones(256 if kind == 'heavy' else 1024, 1024) * loss)".replace("'", '"')
    )
    assert (imbalance.rank, imbalance.file, imbalance.line) == (2, str(PROGRAM), line)
    assert "the highest is rank 2" in "\n".join(rank_lines(run))
    server = Server(tmp_path)
    band = server.json("/ranks", run=f"memguard-runs/{folder.name}", px=100)
    assert set(band["worst"][2:]) == {2}
    worst = server.json("/worst", run=f"memguard-runs/{folder.name}")["worst"]
    assert (worst["rank"], worst["finding"]["code"], worst["finding"]["line"]) == (2, "MG603", line)
    assert any(f"ranks_program.py:{line}" in cause for cause in worst["why"])


def test_the_stage_that_grows_is_named_with_its_line(tmp_path: Path) -> None:
    """Coordinates come from the DeviceMesh; report and JSON name the last stage and the statement."""
    told, done = launch("stages", str(tmp_path))
    assert (len(told), done.returncode) == (4, 0), done.stderr
    run = load_run([str(tmp_path)])
    places = [each["coordinates"] for each in run.to_json()["ranks"]]
    assert places == [{"dp": 0, "pp": 0}, {"dp": 1, "pp": 0}, {"dp": 0, "pp": 1}, {"dp": 1, "pp": 1}]
    grows = next(each for each in run.verdicts if each.kind == "grows")
    line = 1 + PROGRAM.read_text().splitlines().index("        outputs.append(torch.ones(256, 1024) + loss.detach())")
    assert (dict(grows.axes), grows.ranks, grows.file, grows.line) == ({"pp": 1}, (2, 3), str(PROGRAM), line)
    assert {tuple(each.ranks) for each in run.verdicts} == {(2, 3)}
    assert grows.text in "\n".join(rank_lines(run))


@pytest.mark.long
def test_one_rank_out_of_memory_is_named_by_all(tmp_path: Path) -> None:
    """Its report is there when the others fall, theirs say who it was, and the launcher ends as ever."""
    assert launch("oom", str(tmp_path), ranks=3)[1].returncode == 1
    (folder,) = (tmp_path / "memguard").glob("oom-rank00002-*")
    run = load_run([str(tmp_path)])
    (failed,) = (each for each in run.ranks.values() if each.summary.oom is not None)
    assert failed.rank == 2 and failed.last_time is not None
    assert 0 < (folder / "report.json").stat().st_mtime - failed.last_time < 5
    assert run.summary.oom is not None and "kept" in run.summary.oom["cause"]
    assert "Rank 2 ran out of memory in train batch" in "\n".join(rank_lines(run))
    # torchrun sends SIGTERM as soon as the first rank is gone: those that had the time to speak all say the same.
    assert {peer["rank"] for each in run.ranks.values() for peer in each.peers} <= {2}


@pytest.mark.slow
def test_a_rank_that_failed_by_itself_is_named_by_the_others(tmp_path: Path) -> None:
    """Started by hand, so that nobody ends the others: their error says who failed before."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        place = {"WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
    place |= {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-W", "ignore", str(PROGRAM), "failed", str(tmp_path)]
    ranks = [
        subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, **place, "RANK": str(rank)})
        for rank in range(3)
    ]
    said = [rank.communicate(timeout=300)[1] for rank in ranks]
    for rank in (0, 2):
        assert f"memguard: before rank {rank} failed, rank 1 ended with an exception: ValueError" in said[rank]
    run = load_run([str(tmp_path)])
    assert [[peer["rank"] for peer in run.ranks[rank].peers] for rank in range(3)] == [[1], [], [1]]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["oom", "killed"])
def test_the_launchers_exit_code_is_unchanged(kind: str, tmp_path: Path) -> None:
    """A rank that dies ends the run as it does without memguard, and no later."""
    plain, guarded = launch(kind)[1], launch(kind, str(tmp_path))[1]
    assert guarded.returncode == plain.returncode != 0


@pytest.mark.slow
def test_a_killed_rank_leaves_all_recordings_readable(tmp_path: Path) -> None:
    """Kill -9 in the middle of a run: every recording reads to its last batch, and the report says who fell."""
    assert launch("killed", str(tmp_path))[1].returncode != 0
    recordings = [Recording.open(path) for path in find_recordings(tmp_path)]
    assert [recording.session["rank"] for recording in recordings] == [0, 1, 2, 3]
    assert all(len(recording) >= 8 and not recording.notes for recording in recordings)
    run = load_run([str(tmp_path)])
    assert run.ranks[1].summary.ended is None
    assert "ended without a word" in "\n".join(rank_lines(run))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ddp", "unused", "wrapped", "fsdp2", "fsdp1"])
def test_four_ranks_train_the_same_with_the_same_collectives(kind: str, tmp_path: Path) -> None:
    """Losses bit-identical, and the backend counted not one operation more, those of DDP's reducer among them."""
    plain, _ = launch(kind)
    guarded, done = launch(kind, str(tmp_path))
    assert len(plain) == 4, done.stderr
    assert guarded == plain
    assert plain[0]["collectives"] > 20
    whole, sharded = 74_784, kind.startswith("fsdp")
    owners = [Recording.open(path).of_kind("owners")[-1] for path in find_recordings(tmp_path)]
    expected = whole // 4 if sharded else whole
    for name in ("parameters_bytes", "gradients_bytes"):
        assert [each[name] for each in owners] == pytest.approx([expected] * 4, rel=0.01), "what this rank holds"
