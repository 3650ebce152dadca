import argparse
import json
import re
import subprocess
import sys

import pytest
import torch

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
    """--json prints the fields, --html and --svg write files."""
    page, image = tmp_path / "f.html", tmp_path / "f.svg"
    assert run(f"{script}:build", "--device", "t4", "--json", "--html", page, "--svg", image) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["verdict"] == "fits" and data["reserved_peak_bytes"] > 0
    assert "<svg" in page.read_text() and "optimizer states" in page.read_text()
    assert image.read_text().startswith("<svg xmlns")


@pytest.mark.parametrize(("device", "code"), [("1GiB", 0), ("4MiB", 1)])
def test_a_script_can_ask_for_an_exit_code(script, device, code):
    """1 where the step does not fit; without the option 0."""
    assert run(f"{script}:build", "--device", device, "--steps", 1, "--fail-if-not-fit") == code
    assert run(f"{script}:build", "--device", device, "--steps", 1) == 0


def test_an_exit_code_needs_a_gpu(script):
    """Without one there is no verdict to fail by."""
    with pytest.raises(MemGuardError, match="--fail-if-not-fit needs a GPU"):
        run(f"{script}:build", "--steps", 1, "--fail-if-not-fit")


@pytest.mark.long
def test_cards_and_batches_are_one_table(script, capsys):
    """One line for each card, with its largest batch."""
    assert run(f"{script}:build", "--steps", 1, "--batch", 16, "--device", "1GiB", "--cards", "64MiB,t4") == 0
    lines = capsys.readouterr().out.splitlines()
    head = next(index for index, line in enumerate(lines) if line.startswith("Reserved by card and batch size"))
    assert lines[head + 1].split()[-2:] == ["largest", "batch"] and "batch 64" in lines[head + 1]
    first, second = lines[head + 2 : head + 4]
    assert first.startswith("  a GPU with 64.0 MiB") and second.startswith("  Tesla T4")
    assert 1000 < int(first.split()[-1]) < int(second.split()[-1])


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


OWN_ARGUMENTS = """
import argparse
import sys
import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--width", type=int, default=32)
given = parser.parse_args()

def build():
    model = nn.Linear(given.width, given.width)
    return model, None, lambda: model(torch.randn(4, given.width)).sum().backward()
"""


def test_the_script_s_own_arguments_are_not_the_command_s(tmp_path, monkeypatch, capsys):
    """Its parser sees its name and nothing else."""
    script = tmp_path / "train.py"
    script.write_text(OWN_ARGUMENTS)
    monkeypatch.setattr(sys, "argv", ["memguard", "forecast", f"{script}:build", "--device", "1GiB"])
    assert main(["forecast", f"{script}:build", "--device", "1GiB", "--steps", "1"]) == 0
    assert sys.argv[0] == "memguard" and "The step fits" in capsys.readouterr().out


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


def test_real_steps_need_a_gpu(script):
    """Where PyTorch sees none, the command says so instead of tracing."""
    if torch.cuda.is_available():
        pytest.skip("there is one")
    with pytest.raises(MemGuardError, match="--measure runs the step on a CUDA GPU"):
        run(f"{script}:build", "--measure")
