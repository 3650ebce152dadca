import argparse
import json
import re
import subprocess
import sys

import pytest

from memguard.cli import main
from memguard.commands import forecast
from memguard.errors import MemGuardError

SCRIPT = """
import torch
from torch import nn

def build(batch=16):
    model = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 128)).to("cuda")
    optimizer = torch.optim.Adam(model.parameters())

    def step():
        optimizer.zero_grad()
        model(torch.randn(batch, 128, device="cuda")).sum().backward()
        optimizer.step()

    return model, optimizer, step

def broken():
    raise RuntimeError("no data today")

def wrong():
    return 3
"""


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    return path


def run(*arguments):
    parser = argparse.ArgumentParser()
    forecast.add(parser.add_subparsers())
    given = parser.parse_args(["forecast", *map(str, arguments)])
    return given.run(given)


def test_text_begins_with_the_verdict(script, capsys):
    """One line says whether it fits."""
    assert run(f"{script}:build", "--device", "1GiB", "--steps", 1) == 0
    assert capsys.readouterr().out.startswith("The step fits on a GPU with 1.00 GiB")


def test_json_and_files(script, tmp_path, capsys):
    """--json prints the fields, --html and --png write files."""
    page, image = tmp_path / "f.html", tmp_path / "f.png"
    assert run(f"{script}:build", "--device", "t4", "--json", "--html", page, "--png", image) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["verdict"] == "fits" and data["reserved_peak_bytes"] > 0
    assert "<svg" in page.read_text() and "optimizer states" in page.read_text()
    assert image.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("target", "error"),
    [
        ("{script}:missing", "has no function 'missing'; it has broken, build, wrong"),
        ("{script}", "does not name a function"),
        ("nowhere.py:build", "there is no file nowhere.py"),
        ("{script}:broken", r"RuntimeError at .*train.py:17: no data today"),
        ("{script}:wrong", r"must return \(model, optimizer, step\), got int"),
    ],
)
def test_bad_targets_are_one_clear_error(script, target, error):
    """Each names what is wrong; the command line turns it into exit code 2."""
    with pytest.raises(MemGuardError, match=error):
        run(target.format(script=script), "--device", "1GiB")


BAD = """
import torch
from torch import nn

def raising():
    model = nn.Linear(8, 8).cuda()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def step():
        raise ZeroDivisionError("the loader is empty")

    return model, optimizer, step

def elsewhere():
    model = nn.Linear(8, 8, device="xpu")
    return model, None, lambda: model(torch.randn(2, 8, device="xpu"))

def mixed():
    model = nn.Linear(8, 8).cuda()
    return model, None, lambda: model(torch.randn(2, 8)).sum().backward()
"""


@pytest.mark.parametrize(
    ("target", "options", "error"),
    [
        ("broken.py:build", (), r"broken.py cannot be imported: ModuleNotFoundError.*no_such_library"),
        ("bad.py:raising", (), r"ZeroDivisionError at .*bad.py:10: the loader is empty"),
        ("bad.py:elsewhere", (), r"at .*bad.py:15: .*xpu"),
        ("bad.py:mixed", (), r"at .*bad.py:20: .*same device.*cuda:0"),
        ("bad.py:raising", ("--device", "nvidia-zx81"), r"'nvidia-zx81' is neither a size like 24GiB nor a known card"),
        ("bad.py:raising", ("--alloc-conf", "backend:cudaMallocAsync"), r"cudaMallocAsync"),
    ],
)
def test_the_command_ends_with_one_line_and_code_2(tmp_path, target, options, error, monkeypatch, capfd):
    """Nothing on stdout, one line on stderr that names the value, exit code 2."""
    (tmp_path / "bad.py").write_text(BAD)
    (tmp_path / "broken.py").write_text("import no_such_library\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    assert main(["forecast", target, "--device", "1GiB", *options]) == 2
    said = capfd.readouterr()
    lines = [line for line in said.err.splitlines() if line.strip()]
    assert not said.out
    assert len(lines) == 1 and re.search(error, lines[0]), said.err


ALONE = """
import subprocess
import sys
from memguard.cli import main
assert main(["forecast", sys.argv[1], "--device", "1GiB", "--steps", "1", "--json"]) == 0
assert "torch" not in sys.modules, "unloading it takes longer than the step"
"""


def test_pytorch_is_loaded_by_the_child_alone(script):
    """The command's own process never loads it, and gets the whole answer from one that did."""
    command = [sys.executable, "-c", ALONE, f"{script}:build"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout)["verdict"] == "fits"
