"""`memguard run` of scripts that start processes of their own."""

import importlib
import multiprocessing
import os
import shutil
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from memguard.integrations.child_processes import Guarded, StartedProcesses
from memguard.integrations.script import run_script
from tests.commands.test_run import python, run

RANKS = """
import os, sys
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

def train(rank, file):
    dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=2)
    torch.manual_seed(rank)
    net = DistributedDataParallel(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1)))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    kept = []
    for _ in range(16):
        optimizer.zero_grad()
        loss = net(torch.randn(4, 8)).square().mean()
        loss.backward()
        optimizer.step()
        if rank:
            kept.append(loss)
    if not rank:
        print(loss.item(), flush=True)
    dist.barrier()
    dist.destroy_process_group()

if __name__ == "__main__":
    mp.spawn(train, args=(sys.argv[1],), nprocs=2)
    print("both are done")
"""

FORKED = """
import multiprocessing as mp, sys
import torch
from torch import nn
torch.set_num_threads(1)

def train(queue, seed):
    torch.manual_seed(seed)
    net = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    kept = []
    for _ in range(12):
        optimizer.zero_grad()
        loss = net(torch.randn(4, 8)).square().mean()
        loss.backward()
        optimizer.step()
        kept.append(loss)
    queue.put(loss.item())
    if seed == 3:
        raise ValueError("planted")

def value(seed):
    torch.manual_seed(seed)
    return nn.Linear(8, 1)(torch.ones(1, 8)).item()

context = mp.get_context("fork")
queue = context.Queue()
for seed in (2, 3):
    process = context.Process(target=train, args=(queue, seed))
    process.start()
    print(queue.get(timeout=60))
    process.join()
    print(process.exitcode)
with context.Pool(2) as pool:
    print(pool.map(value, [1, 2]))
"""


@pytest.mark.long
@pytest.mark.parametrize("device", [pytest.param("cpu", marks=pytest.mark.slow), "virtual:1GiB"])
def test_ranks_that_a_script_spawns_are_guarded(device: str, tmp_path: Path) -> None:
    """Each knows its rank; the script's process tells of both, and what only one of them does."""
    script = tmp_path / "train.py"
    script.write_text(RANKS)
    alone = python(script.name, str(tmp_path / "first"), cwd=tmp_path)
    guarded = run(script, str(tmp_path / "second"), options=("--device", device))
    loss = alone.stdout.splitlines()[0]  # gloo may fail as its last rank leaves
    assert (guarded.stdout.splitlines(), guarded.returncode) == ([loss, "both are done"], 0), guarded.stderr
    assert "memguard on 2 ranks" in guarded.stderr and "batches in all, 1 warning." in guarded.stderr
    assert [line.split()[1] for line in guarded.stderr.splitlines() if line.startswith("train ")] == ["32"]
    assert "MG101 retained-graph [rank 1]: `kept` (train.py:" in guarded.stderr


def test_processes_that_a_script_starts_are_guarded(tmp_path: Path) -> None:
    """Results and exit codes are their own, one that fails included; a pool's workers are left alone."""
    script = tmp_path / "train.py"
    script.write_text(FORKED)
    folders = tmp_path / "folders"
    folders.mkdir()
    alone = python(script.name, cwd=tmp_path)
    guarded = run(script, options=("--device", "cpu"), TMPDIR=str(folders))
    assert (guarded.stdout, guarded.returncode) == (alone.stdout, 0), guarded.stderr
    assert "24 batches in 2 starts, 1 warning" in guarded.stderr and "planted" in guarded.stderr
    assert "MG101 retained-graph: `kept` (train.py:" in guarded.stderr
    assert list(folders.glob("memguard*")) == []


def _work(places: str) -> None:
    Path(places).write_text("done")


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_process_without_torch_just_runs(method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its function is called, and nothing of it is left."""
    started = StartedProcesses({"device": "cpu"})
    started.install()
    try:
        process = multiprocessing.get_context(method).Process(target=_work, args=(str(tmp_path / "told"),))
        process.start()
        process.join(60)
    finally:
        assert started.remove() == []
    assert (tmp_path / "told").read_text() == "done" and process.exitcode == 0


def test_who_stands_before_us_stays_and_nothing_is_guarded_any_more() -> None:
    """What replaced `start` after us calls ours, which only passes on then."""
    started, targets = StartedProcesses({"device": "cpu"}), []
    process = multiprocessing.Process(target=_work)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BaseProcess, "start", lambda process: targets.append(vars(process)["_target"]))
        started.install()
        ours = BaseProcess.start
        process.start()
        assert isinstance(targets.pop(), Guarded) and vars(process)["_target"] is _work
        patch.setattr(BaseProcess, "start", lambda process: ours(process))
        assert started.remove() == []
        process.start()
    assert targets == [_work]


@pytest.mark.parametrize(
    ("module", "guarded"),
    [("concurrent.futures.process", False), ("concurrent_training", True), ("torch.utils", False)],
)
def test_only_the_packages_that_serve_others_are_left_alone(module: str, guarded: bool) -> None:
    """A module of the script's own whose name begins alike is not one of them."""
    started, targets = StartedProcesses({"device": "cpu"}), []

    def work() -> None:
        """Does nothing."""

    work.__module__ = module
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BaseProcess, "start", lambda process: targets.append(vars(process)["_target"]))
        started.install()
        multiprocessing.Process(target=work).start()
        started.remove()
    assert isinstance(targets[0], Guarded) is guarded


def test_a_temporary_folder_that_the_script_cleared_is_no_failure(caplog: pytest.LogCaptureFixture) -> None:
    """It is told, and nothing raised: the exit code stays the script's."""
    started, targets = StartedProcesses({"device": "cpu"}), []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BaseProcess, "start", lambda process: targets.append(vars(process)["_target"]))
        started.install()
        multiprocessing.Process(target=_work).start()
        shutil.rmtree(targets[0].folder)
        assert started.remove() == []
    assert "cannot be read" in caplog.text


def test_a_forked_child_that_ends_leaves_the_folder_to_its_parent() -> None:
    """As one of os.fork, which goes on to the script's end."""
    started, targets = StartedProcesses({"device": "cpu"}), []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BaseProcess, "start", lambda process: targets.append(vars(process)["_target"]))
        started.install()
        multiprocessing.Process(target=_work).start()
        with pytest.MonkeyPatch.context() as child:
            child.setattr("memguard.integrations.child_processes.os.getpid", lambda: -1)
            assert started.remove() == []
    assert Path(targets[0].folder).is_dir()
    shutil.rmtree(targets[0].folder)


def test_a_guard_that_cannot_begin_lets_the_process_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It says so, and calls the function all the same; no place is left where a session did not record."""
    importlib.import_module("torch")  # a process without it is not guarded
    guarded = Guarded(os.path.basename, {"device": "cpu", "colour": "green"}, str(tmp_path))
    assert guarded("a/b") == "b"
    assert any("this process is not guarded: TypeError: " in record.getMessage() for record in caplog.records)
    assert list(tmp_path.iterdir()) == []


def test_what_starts_memguard_run_is_no_part_of_the_program(tmp_path: Path) -> None:
    """Of a program that was started here the user's stack ends with the program's own file."""
    script, files = tmp_path / "train.py", tmp_path / "files.txt"
    script.write_text(
        "from pathlib import Path\n"
        "from memguard.heap.frames import user_frames\n"
        f"Path({str(files)!r}).write_text('\\n'.join(frame.f_code.co_filename for frame in user_frames()))\n"
    )
    code, _ = run_script(str(script), [], {"device": "cpu", "logdir": str(tmp_path)}, module=False)
    assert code == 0 and files.read_text().splitlines() == [str(script)]
