"""Layouts of several processes: the code's mesh with other sizes, ranked by what its highest rank needs."""

import subprocess
import sys

import pytest

import memguard
from memguard.errors import MemGuardError

PROGRAM = """
import torch
from torch import nn
from torch.distributed import init_process_group
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module


def make():
    init_process_group("nccl")
    mesh = init_device_mesh("cuda", (8, 1), mesh_dim_names=("dp", "tp"))
    model = nn.Sequential(nn.Linear(1024, 4096, bias=False), nn.GELU(), nn.Linear(4096, 1024, bias=False)).cuda()
    if mesh["tp"].size() > 1:
        parallelize_module(model, mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    fully_shard(model, mesh=mesh["dp"])
    optimizer = torch.optim.AdamW(model.parameters())

    def step():
        optimizer.zero_grad()
        model(torch.randn(512, 1024, device="cuda")).sum().backward()
        optimizer.step()

    return model, optimizer, step
"""


def program():
    """The function of the file."""
    names: dict = {}
    exec(PROGRAM, names)
    return names["make"]


@pytest.mark.filterwarnings("ignore:FSDP2-wrapped module")
def test_the_code_s_mesh_takes_the_sizes_of_each_layout():
    """The lowest comes first, and is what the rest of the answer is about."""
    found = memguard.forecast(
        model=program(), nproc=8, device="h100", meshes=[{"dp": 8, "tp": 1}, {"dp": 2, "tp": 4}], steps=2
    )
    peaks = [one.reserved_peak_bytes for one in found.layouts]
    assert peaks == sorted(peaks)
    assert found.reserved_peak_bytes == peaks[0]
    assert {tuple(one.mesh.values()) for one in found.layouts} == {(8, 1), (2, 4)}
    assert found.to_json()["layouts"][0]["mesh"] == found.layouts[0].mesh


def test_the_command_compares_layouts(tmp_path):
    """One line for each; one that the code cannot have says why."""
    (tmp_path / "train.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "memguard", "forecast", "train.py:make", "--nproc", "8", "--device", "h100"]
    layouts = ["--mesh", "dp=8,tp=1", "--mesh", "dp=8,pp=1"]
    done = subprocess.run([*command, *layouts], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "By layout, the lowest first" in done.stdout
    assert "dp 8, pp 1  cannot be forecast: the layout dp 8, pp 1 is that of no mesh" in done.stdout


@pytest.mark.parametrize("mesh", [{"dp": 4, "tp": 4}, {}])
def test_a_layout_of_other_ranks_is_refused(mesh):
    """It must have as many as the training."""
    with pytest.raises(ValueError, match="ranks"):
        memguard.forecast(model=program(), nproc=8, device="h100", meshes=[mesh])


def test_a_layout_that_no_mesh_has_is_told():
    """The only layout: its reason is the error."""
    with pytest.raises(MemGuardError, match="mesh_dim_names of data"):
        memguard.forecast(model=program(), nproc=8, device="h100", meshes=[{"data": 8}])


def test_a_layout_written_otherwise_is_told_how(tmp_path):
    """With exit code 2, as for every option that makes no sense."""
    (tmp_path / "train.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "memguard", "forecast", "train.py:make", "--nproc", "8", "--mesh", "8x1"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "like dp=4,tp=2" in done.stderr
