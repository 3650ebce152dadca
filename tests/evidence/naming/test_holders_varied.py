"""Who holds old graphs: states that are carried by an attribute, and cells of a notebook."""

import linecache
import sys
import types
from pathlib import Path

import pytest
import torch

from memguard.evidence.naming.holders import Holder, HolderSearch
from memguard.heap.frames import user_frames
from tests.evidence.scripts import marked_lines, run

VARIED: dict[str, tuple[str, str]] = {}
"""Name of the case -> (holder, script). The line that is to be named carries the mark."""

VARIED["carry via attribute of namespace"] = (
    "carry.h",
    """
from types import SimpleNamespace
carry = SimpleNamespace(h=torch.zeros(4,8))
cell = nn.GRUCell(8,8)
def step(x):
    carry.h = cell(x, carry.h)  # <-
    return carry.h
for x, y in batches():
    step(x)
""",
)
VARIED["carry via method"] = (
    "Env.state",
    """
class Env(nn.Module):
    def __init__(self):
        super().__init__()
        self.dyn = nn.Linear(16, 8)
        self.state = torch.zeros(4, 8)
    def transition(self, a):
        return torch.tanh(self.dyn(torch.cat([self.state, a], 1)))
    def forward(self, a):
        self.state = self.transition(a)  # <-
        return self.state.sum()
env = Env()
for x, y in batches():
    env(x)
""",
)


@pytest.mark.parametrize("case", VARIED)
def test_names_the_holder_and_the_line(case: str, tmp_path: Path) -> None:
    """The variable and the statement that keep graphs of earlier batches are named."""
    holder, script = VARIED[case]
    holders = run(script, tmp_path)
    assert holders and holders[0].place.line in marked_lines(tmp_path / "script.py")
    assert holders[0].place.holder == holder


def test_cells_of_a_notebook_share_their_globals(monkeypatch: pytest.MonkeyPatch) -> None:
    """A list in one cell, a function that fills it in another: the line in the other cell is named."""
    cells = {
        "<ipython-input-1-a>": "history = []\n",
        "<ipython-input-2-b>": "def record(value):\n    history.append(value)\n",
        "<ipython-input-3-c>": "for _ in range(4):\n    record(torch.ones(2))\nfound = name()\n",
    }

    def name() -> tuple[Holder, ...]:
        return HolderSearch(frames=user_frames(sys._getframe(1))).find(
            lambda tensor: 8 if tensor.numel() == 2 else None, graph=False
        )

    notebook = types.ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", notebook)
    notebook.__dict__.update(torch=torch, name=name)
    for file, text in cells.items():
        monkeypatch.setitem(linecache.cache, file, (len(text), None, text.splitlines(True), file))
        exec(compile(text, file, "exec"), notebook.__dict__)
    (holder,) = notebook.found
    assert (holder.place.file, holder.place.line) == ("<ipython-input-2-b>", 2)
    assert (holder.place.holder, holder.place.function, holder.length) == ("history", "record", 4)
