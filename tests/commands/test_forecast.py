import argparse
import json

import pytest

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
