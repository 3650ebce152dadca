"""Launchers as users call them: torchrun with an elastic restart, accelerate launch, deepspeed."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from memguard.report.runs import RunOnDisk, load_run

PROGRAM = str(Path(__file__).with_name("resumed_program.py"))
OWN_STORE = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
"""Else torch 2.13 hands the second start the addresses of the first one, which Gloo waits for."""
pytestmark = pytest.mark.slow


def launch(tmp_path: Path, command: list[str], **more: str) -> subprocess.CompletedProcess[str]:
    """Runs a launcher in a directory of its own; its temporary directory lies there too."""
    (tmp_path / "tmp").mkdir(exist_ok=True)
    (tmp_path / "cwd").mkdir(exist_ok=True)
    environment = {**os.environ, "TMPDIR": str(tmp_path / "tmp"), "PYTHONPATH": os.getcwd(), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        command,
        cwd=tmp_path / "cwd",
        env={**environment, "PYTHONWARNINGS": "ignore", **more},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def assert_resumed(run: RunOnDisk, ranks: int) -> None:
    """Each rank has two starts, of one run, whose batches are counted through."""
    assert sorted(run.ranks) == list(range(ranks))
    for each in run.ranks.values():
        assert len(each.starts) == 2 and each.summary.ended == "finished"
        assert each.starts[-1].batches == 6, "the last checkpoint was that of step 9"
        assert each.session["restart"] == 1
    assert run.ranks[2].starts[0].ended is None, "it was killed"
    assert run.ranks[2].starts[0].batches in (9, 10)


@pytest.mark.parametrize("place", ["default", "url"])
def test_torchrun_kills_and_resumes_four_ranks(place: str, tmp_path: Path) -> None:
    """A rank is killed, torchrun starts all of them again: one run with two starts of each rank.

    Behind a URL the start that was killed is copied by the one that follows it on the machine.
    """
    logdir = {"default": "-", "url": f"file://{tmp_path}/far/run"}[place]
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "4", "--max-restarts", "1"]
    command += [
        "--rdzv-backend",
        "c10d",
        "--rdzv-endpoint",
        "localhost:0",
        "--rdzv-id",
        "job7",
        "--monitor-interval",
        "0.2",
    ]
    done = launch(tmp_path, [*command, PROGRAM, str(tmp_path / "checkpoint"), logdir, "kill"], **OWN_STORE)
    assert done.returncode == 0, done.stderr[-3000:]
    found = {"default": tmp_path / "cwd" / "memguard-runs" / "torchrun-job7", "url": logdir}[place]
    run = load_run([str(found)])
    assert_resumed(run, 4)
    first, last = run.ranks[2].starts
    assert (first.time or 0) < (last.time or 0)


def test_accelerate_launch_starts_one_run(tmp_path: Path) -> None:
    """Two processes of its own launcher record as the ranks of one run."""
    pytest.importorskip("accelerate")
    command = [sys.executable, "-m", "accelerate.commands.launch", "--num_processes", "2", "--num_machines", "1"]
    command += ["--mixed_precision", "no", "--dynamo_backend", "no", "--multi_gpu", "--main_process_port", "0"]
    done = launch(tmp_path, [*command, PROGRAM, str(tmp_path / "checkpoint"), "-"])
    assert done.returncode == 0, done.stderr[-3000:]
    run = load_run([str(tmp_path / "cwd")])
    assert sorted(run.ranks) == [0, 1] and run.summary.ended == "finished"
    assert {each.batches for each in (rank.summary for rank in run.ranks.values())} == {16}


def test_deepspeed_starts_one_run(tmp_path: Path) -> None:
    """Two processes of the deepspeed launcher, whose engine trains with ZeRO: one run, two ranks, the same batches."""
    if importlib.util.find_spec("deepspeed") is None:
        pytest.skip("deepspeed is not installed: make test-engines brings it")
    program = str(Path(__file__).with_name("deepspeed_program.py"))
    command = [sys.executable, "-m", "deepspeed.launcher.runner", "--num_gpus", "2", "--no_local_rank"]
    done = launch(tmp_path, [*command, program], DS_ACCELERATOR="cpu", DS_IGNORE_CUDA_DETECTION="1")
    assert done.returncode == 0, done.stderr[-3000:] + done.stdout[-2000:]
    run = load_run([str(tmp_path / "cwd")])
    assert sorted(run.ranks) == [0, 1] and run.summary.ended == "finished"
    assert {each.batches for each in (rank.summary for rank in run.ranks.values())} == {12}
