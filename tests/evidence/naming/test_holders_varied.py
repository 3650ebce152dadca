"""Who holds old graphs: the same names in several places, states carried in many ways, files beside the script."""

import linecache
import sys
import types
from pathlib import Path

import pytest
import torch

from memguard.evidence.naming.holders import Holder, find_holders
from tests.evidence.scripts import marked_lines, run

VARIED: dict[str, tuple[str, str]] = {}
"""Name of the case -> (holder, script). The line that is to be named carries the mark."""

VARIED["epoch total"] = (
    "epoch_total",
    """
def run(model):
    history = []
    for epoch in range(1):
        epoch_total = 0
        for x, y in batches():
            out = model(x)
            loss = F.mse_loss(out, y)
            loss.backward()
            epoch_total += loss * len(x)  # <-
        history.append(epoch_total.item())
run(nn.Linear(8,1))
""",
)
VARIED["nested class"] = (
    "Stats.total",
    """
class Trainer:
    class Stats:
        def __init__(self): self.total = 0
        def update(self, v): self.total = self.total + v  # <-
    def __init__(self):
        self.stats = self.Stats()
        self.model = nn.Linear(8,1)
    def fit(self):
        for x, y in batches():
            self.stats.update(self.model(x).mean())
Trainer().fit()
""",
)
VARIED["while loop with counter dict"] = (
    "buf",
    """
model = nn.Linear(8,1)
buf = {}
step = 0
gen = batches()
while step < 13:
    x, y = next(gen)
    buf["step_%d" % step] = model(x)  # <-
    step += 1
""",
)
VARIED["accumulate via sum list"] = (
    "total",
    """
def fit(model):
    total = torch.zeros(1)
    for x, y in batches():
        loss = F.mse_loss(model(x), y)
        total = sum([total, loss])  # <-
fit(nn.Linear(8,1))
""",
)
VARIED["np style mean"] = (
    "Meter.avg",
    """
class Meter:
    def __init__(self): self.avg = 0; self.n = 0
    def update(self, v):
        self.n += 1
        self.avg += (v - self.avg) / self.n  # <-
m = Meter(); model = nn.Linear(8,1)
for x, y in batches():
    m.update(F.mse_loss(model(x), y))
""",
)
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
VARIED["carry list rebuilt"] = (
    "Net.states",
    """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.cells = nn.ModuleList([nn.GRUCell(8,8) for _ in range(3)])
        self.states = [None]*3
    def forward(self, x):
        for i, c in enumerate(self.cells):
            s = self.states[i]
            s = c(x, s if s is not None else torch.zeros(4,8))
            self.states[i] = s  # <-
            x = s
        return x
net = Net()
for x, y in batches():
    net(x).sum()
""",
)
VARIED["carry list append in call"] = (
    "states",
    """
def fit(cells):
    states = [torch.zeros(4,8) for _ in cells]
    for x, y in batches():
        states = [c(x, s) for c, s in zip(cells, states)]  # <-
fit(nn.ModuleList([nn.GRUCell(8,8), nn.GRUCell(8,8)]))
""",
)
VARIED["forward cache dict with tuple key"] = (
    "Conv.cache",
    """
class Conv(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(8,1)
        self.cache = {}
        self.i = 0
    def forward(self, x):
        self.i += 1
        key = (x.shape, self.i)
        if key not in self.cache:
            self.cache[key] = self.lin(x)  # <-
        return self.cache[key]
c = Conv()
for x, y in batches(): c(x)
""",
)
VARIED["callback list of lambdas"] = (
    "seen",
    """
def main():
    model = nn.Linear(8,1)
    seen = []
    callbacks = [lambda l: seen.append(l)]  # <-
    for x, y in batches():
        loss = F.mse_loss(model(x), y)
        for cb in callbacks: cb(loss)
main()
""",
)
VARIED["reward model buffer of tuples"] = (
    "Buffer.data",
    """
class Buffer:
    def __init__(self): self.data = []
    def __len__(self): return len(self.data)
    def extend(self, items): self.data.extend(items)  # <-
buf = Buffer(); model = nn.Linear(8,1)
for x, y in batches():
    out = model(x)
    buf.extend([(xi, oi) for xi, oi in zip(x, out)])
""",
)
VARIED["module attr set from outside"] = (
    "model.kept",
    """
model = nn.Linear(8,1)
model.kept = []
for x, y in batches():
    loss = F.mse_loss(model(x), y)
    model.kept.append(loss)  # <-
""",
)

MIXINS = """
class HistoryMixin:
    def __init__(self):
        self.history = []
    def remember(self, v):
        self.history.append(v)  # <-
"""


@pytest.mark.parametrize("case", VARIED)
def test_names_the_holder_and_the_line(case: str, tmp_path: Path) -> None:
    """The variable and the statement that keep graphs of earlier batches are named, in whatever file it stands."""
    holder, script = VARIED[case]
    holders = run(script, tmp_path, others={"mixins": MIXINS} if "mixins" in script else None)
    told = [(str(h), h.place.source) for h in holders]
    assert holders, "nobody was named"
    file = tmp_path / ("mixins.py" if "mixins" in script else "script.py")
    assert holders[0].place.file == str(file), told
    assert holders[0].place.line in marked_lines(file), told
    assert holders[0].place.holder == holder, told


def test_cells_of_a_notebook_share_their_globals(monkeypatch: pytest.MonkeyPatch) -> None:
    """A list in one cell, a function that fills it in another: the line in the other cell is named."""
    cells = {
        "<ipython-input-1-a>": "history = []\n",
        "<ipython-input-2-b>": "def record(value):\n    history.append(value)\n",
        "<ipython-input-3-c>": "for _ in range(4):\n    record(torch.ones(2))\nfound = name()\n",
    }

    def name() -> tuple[Holder, ...]:
        return find_holders(lambda tensor: 8 if tensor.numel() == 2 else None, graph=False, frame=sys._getframe(1))

    notebook = types.ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", notebook)
    notebook.__dict__.update(torch=torch, name=name)
    for file, text in cells.items():
        monkeypatch.setitem(linecache.cache, file, (len(text), None, text.splitlines(True), file))
        exec(compile(text, file, "exec"), notebook.__dict__)
    (holder,) = notebook.found
    assert (holder.place.file, holder.place.line) == ("<ipython-input-2-b>", 2)
    assert (holder.place.holder, holder.place.function, holder.length) == ("history", "record", 4)
