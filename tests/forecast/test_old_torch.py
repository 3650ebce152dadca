"""A torch that cannot trace a CUDA step without CUDA, as torch 2.4 cannot: one line says so, whichever way is taken."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import memguard
from memguard.cli import main
from memguard.errors import MemGuardError

STEP = """
import torch

def make():
    model = torch.nn.Linear(4, 4)
    return model, torch.optim.SGD(model.parameters(), lr=0.1), lambda: model(torch.ones(2, 4)).sum().backward()
"""


@pytest.fixture(autouse=True)
def old_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without what the forecast needs of torch; the child that traces is forked, and inherits it."""
    old = SimpleNamespace(__version__="2.4.0", __file__=torch.__file__, _C=SimpleNamespace())
    monkeypatch.setattr("memguard.forecast.fakes.device_guard.torch", old)


def test_the_function_says_which_torch_it_needs() -> None:
    """The error names the version at hand and those that are known to do."""
    model = torch.nn.Linear(4, 4)
    with pytest.raises(MemGuardError, match=r"torch 2\.4\.0 .* cannot trace .* forecasts need a newer one"):
        memguard.forecast(lambda: model(torch.ones(2, 4)).sum().backward(), model=model, device="24GiB")


def test_the_command_says_it_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On stderr, without a traceback, and with the exit code of an error."""
    (tmp_path / "train.py").write_text(STEP)
    assert main(["forecast", f"{tmp_path / 'train.py'}:make", "--device", "24GiB"]) == 2
    told = capsys.readouterr().err
    assert "forecasts need a newer one" in told and told.count("\n") == 1
