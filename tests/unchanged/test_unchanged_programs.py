from pathlib import Path

import pytest

from tests.corpus.runner import programs, virtual_of
from tests.unchanged.outcome import Outcome, differences
from tests.unchanged.run import ROOT, compare

HEAD = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)

    def forward(self, x):
        return self.layer(x)

def train(model):
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(5):
        optimizer.zero_grad()
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()

torch.manual_seed(0)
model = Net()
train(model)
"""
ENDS = {
    "interrupted": "raise KeyboardInterrupt",
    "saves at exit": "import atexit; atexit.register(lambda: (torch.save(model, 'model.pt'), print(__name__)))",
    "exits": "import sys; sys.exit(3)",
    "exits below zero": "import sys; sys.exit(-2)",
    "exits with a word": "import sys; sys.exit('no luck')",
    "leaves at once": "import os; print('gone', flush=True); os._exit(7)",
    "raises": "def f():\n    raise ValueError('x')\ntry:\n    1 / 0\nexcept ZeroDivisionError:\n    f()",
    "is terminated": "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
    "has a hook of its own": "import sys; sys.excepthook = lambda *e: print('mine', e[0]); raise ValueError",
    "replaces stdout": "import io, sys; sys.stdout = io.TextIOWrapper(open('out.txt', 'wb')); print('hello')",
    "reads stdin": "import sys; print(repr(sys.stdin.read()), sys.argv, __file__, __spec__, sys.path[0])",
    "has arguments": "import argparse; p = argparse.ArgumentParser(); p.print_help(); p.parse_args(['--no'])",
    "ends in a thread": "import threading, time\n"
    "def later():\n    time.sleep(1); torch.save(model, 'model.pt'); print(__name__)\n"
    "threading.Thread(target=later).start()",
    "counts numbers of hooks": "print(model.register_forward_hook(print).id, model._forward_hooks)",
}
"""How a program may end, or what it asks of its process."""
QUICK = ("interrupted", "saves at exit")


@pytest.mark.parametrize("end", [pytest.param(e, marks=[] if e in QUICK else [pytest.mark.slow]) for e in ENDS])
def test_a_program_ends_as_without_memguard(end: str, tmp_path: Path) -> None:
    """Exit code or signal, output, traceback, files, weights and random numbers."""
    program = tmp_path / "program.py"
    program.write_text(HEAD + ENDS[end] + "\n")
    assert compare(program, tmp_path / "run", device="virtual:64MiB") == []


@pytest.mark.parametrize("device", ["cpu", pytest.param("virtual:64MiB", marks=pytest.mark.slow)])
def test_what_a_program_saves_is_the_same_to_the_byte(device: str, tmp_path: Path) -> None:
    """Whole models, checkpoints, copies, pickles, scripts; and what it counts of hooks."""
    program = ROOT / "tests" / "unchanged" / "programs" / "saves.py"
    assert compare(program, tmp_path / "run", device=device) == []


@pytest.mark.slow
@pytest.mark.parametrize("device", ["cpu", "virtual:64MiB"])
def test_what_a_program_exports_is_the_same(device: str, tmp_path: Path) -> None:
    """joblib, cloudpickle, torch.package, torch.export, Dynamo's export, torch.fx, replicas."""
    program = ROOT / "tests" / "unchanged" / "programs" / "exports.py"
    assert compare(program, tmp_path / "run", device=device) == []


@pytest.mark.slow
@pytest.mark.parametrize("path", programs(), ids=lambda path: path.stem)
def test_a_program_of_the_corpus_is_unchanged(path: Path, tmp_path: Path) -> None:
    """On the virtual device that it names."""
    script = path / "main.py" if path.is_dir() else path
    assert compare(script, tmp_path / "run", device=virtual_of(path)) == []


def test_the_comparison_can_fail() -> None:
    """Each part counts; what two plain runs do not agree on counts by its form."""
    plain = Outcome(0, b"loss 1\n", b"", {"model.pt": b"abc"}, {"0": "x"})
    assert differences(plain, plain) == []
    for other in (
        Outcome(1, b"loss 1\n", b"", {"model.pt": b"abc"}, {"0": "x"}),
        Outcome(0, b"loss 2\n", b"", {"model.pt": b"abc"}, {"0": "x"}),
        Outcome(0, b"loss 1\n", b"Traceback", {"model.pt": b"abc"}, {"0": "x"}),
        Outcome(0, b"loss 1\n", b"", {"model.pt": b"abd"}, {"0": "x"}),
        Outcome(0, b"loss 1\n", b"", {}, {"0": "x"}),
        Outcome(0, b"loss 1\n", b"", {"model.pt": b"abc"}, {"0": "y"}),
    ):
        assert len(differences(plain, other)) == 1
    noisy = Outcome(0, b"loss 3\n", b"", {"model.pt": b"xyz"}, {"0": "x"})
    longer = Outcome(0, b"loss 4\nmore\n", b"", {"model.pt": b"wxyz"}, {"0": "x"})
    assert len(differences(plain, longer, noisy)) == 2
