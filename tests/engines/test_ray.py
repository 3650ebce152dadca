"""Ray Train: workers are the ranks of one run, which lies in the run's storage path."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from memguard.integrations.ray_train import ray_storage, ray_worker
from memguard.report.runs import load_run

PROGRAM = str(Path(__file__).with_name("ray_program.py"))


def run_ray(storage: Path, *arguments: str) -> None:
    """Runs the program with a Ray of its own."""
    if importlib.util.find_spec("ray") is None:
        pytest.skip("ray is not installed: make test-engines brings it")
    storage.mkdir()
    done = subprocess.run(
        [sys.executable, PROGRAM, str(storage), *arguments],
        cwd=storage.parent,
        env={**os.environ, "PYTHONPATH": os.getcwd(), "RAY_USAGE_STATS_ENABLED": "0", "PYTHONWARNINGS": "ignore"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:] + done.stdout[-3000:]


@pytest.mark.slow
def test_two_workers_are_two_ranks_of_one_run(tmp_path: Path) -> None:
    """Without a logdir the recordings lie in RunConfig's storage path, below the run's name."""
    run_ray(tmp_path / "storage")
    assert len(list((tmp_path / "storage" / "llama" / "memguard").glob("rank0000[01]-*.bin"))) == 2
    run = load_run([str(tmp_path / "storage")])
    assert sorted(run.ranks) == [0, 1] and run.summary.ended == "finished"
    assert [each.summary.batches for each in run.ranks.values()] == [8, 8]
    assert {each.session["run"] for each in run.ranks.values()} == {"ray-llama"}


@pytest.mark.slow
def test_workers_that_ray_starts_again_go_on_in_the_same_run(tmp_path: Path) -> None:
    """A worker fails, Ray restores the newest checkpoint: two starts of each rank, the first with its reason."""
    run_ray(tmp_path / "storage", "fail")
    run = load_run([str(tmp_path / "storage")])
    assert [len(each.starts) for each in run.ranks.values()] == [2, 2]
    assert run.ranks[1].starts[0].ended == "an exception: RuntimeError"
    assert {each.starts[-1].ended for each in run.ranks.values()} == {"finished"}
    assert all(
        each.summary.batches - each.starts[-1].batches + each.starts[-1].batches >= 6 for each in run.ranks.values()
    )


class Context:
    """What Ray tells a worker."""

    def __init__(self, kind: str, path: str) -> None:
        self._storage = SimpleNamespace(storage_filesystem=SimpleNamespace(type_name=kind), experiment_fs_path=path)

    def get_storage(self) -> Any:
        return self._storage

    def get_experiment_name(self) -> str:
        return "llama 7b"

    def get_world_rank(self) -> int:
        return 3

    def get_world_size(self) -> int:
        return 4

    def get_local_rank(self) -> int:
        return 1

    def get_node_rank(self) -> int:
        return 1


@pytest.mark.parametrize(
    ("kind", "path", "place"),
    [
        ("local", "/data/llama", "/data/llama"),
        ("s3", "bucket/runs/llama", "s3://bucket/runs/llama"),
        ("py::fsspec+memory", "runs/llama", "memory://runs/llama"),
        ("nothing that fsspec knows", "runs/llama", None),
    ],
)
def test_the_storage_path_is_a_path_or_a_url(
    kind: str, path: str, place: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the file system of Ray's storage says; one that memguard cannot reach leaves the usual directory."""
    monkeypatch.setitem(sys.modules, "ray.train", SimpleNamespace(get_context=lambda: Context(kind, path)))
    assert ray_storage() == place
    worker = ray_worker()
    assert worker is not None
    assert (worker.rank, worker.world_size, worker.local_rank, worker.node, worker.run) == (
        3,
        4,
        1,
        "1",
        "ray-llama-7b",
    )


def test_a_process_that_is_no_worker_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray raises there, or was never imported."""

    def refuse() -> None:
        raise RuntimeError("not a worker")

    monkeypatch.setitem(sys.modules, "ray.train", SimpleNamespace(get_context=refuse))
    assert ray_worker() is None and ray_storage() is None
    monkeypatch.delitem(sys.modules, "ray.train")
    assert ray_worker() is None and ray_storage() is None
