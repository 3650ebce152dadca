"""Who holds old graphs or outputs, in the many ways training scripts are written."""

from pathlib import Path

import pytest

from tests.evidence.scripts import marked_lines, run

GRAPHS: dict[str, tuple[str, str]] = {}
"""Name of the case -> (holder, script). The line that is to be named carries the mark."""

GRAPHS["in-place add"] = (
    "acc",
    """
def fit(model):
    acc = torch.zeros(())
    for x, y in batches():
        loss = F.mse_loss(model(x), y)
        acc.add_(loss)  # <-
fit(nn.Linear(8, 1))
""",
)
GRAPHS["passed as an argument"] = (
    "history",
    """
def record(buf, x):
    buf.append(x)  # <-
def fit(model):
    history = []
    for x, y in batches():
        loss = F.mse_loss(model(x), y)
        loss.backward()
        record(history, loss)
fit(nn.Linear(8, 1))
""",
)
GRAPHS["passed by keyword twice"] = (
    "history",
    """
def inner(value, *, into):
    into.append(value)  # <-
def record(loss, store=None):
    inner(loss, into=store)
def fit(model):
    history = []
    for x, y in batches():
        loss = F.mse_loss(model(x), y)
        record(loss, store=history)
fit(nn.Linear(8, 1))
""",
)
GRAPHS["function attribute"] = (
    "train_step.losses",
    """
def train_step(model, x, y):
    loss = F.mse_loss(model(x), y)
    train_step.losses.append(loss)  # <-
    return loss
train_step.losses = []
model = nn.Linear(8, 1)
for x, y in batches():
    train_step(model, x, y)
""",
)
GRAPHS["suspended generator"] = (
    "kept",
    """
def collector():
    kept = []
    while True:
        loss = yield
        kept.append(loss)  # <-
def fit(model):
    sink = collector()
    next(sink)
    for x, y in batches():
        sink.send(F.mse_loss(model(x), y))
fit(nn.Linear(8, 1))
""",
)
GRAPHS["property"] = (
    "Store._items",
    """
class Store:
    def __init__(self):
        self._items = []
    @property
    def items(self):
        return self._items
def fit(model):
    store = Store()
    for x, y in batches():
        store.items.append(model(x))  # <-
fit(nn.Linear(8, 1))
""",
)
GRAPHS["states of several modules"] = (
    "Cell.h",
    """
class Cell(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(8, 8)
        self.h = torch.zeros(4, 8)
    def forward(self, x):
        self.h = torch.tanh(self.lin(x) + self.h)  # <-
        return self.h
def fit(cells):
    for x, y in batches():
        for cell in cells:
            x = cell(x)
fit([Cell(), Cell(), Cell(), Cell()])
""",
)
GRAPHS["list of layer states"] = (
    "Stack.hs",
    """
class Stack(nn.Module):
    def __init__(self):
        super().__init__()
        self.cells = nn.ModuleList([nn.GRUCell(8, 8), nn.GRUCell(8, 8)])
        self.hs = [torch.zeros(4, 8), torch.zeros(4, 8)]
    def forward(self, x):
        new = []
        for cell, h in zip(self.cells, self.hs):
            x = cell(x, h)
            new.append(x)
        self.hs = new  # <-
        return x
model = Stack()
for x, y in batches():
    model(x)
""",
)
GRAPHS["dict comprehension sums"] = (
    "totals",
    """
def fit(model):
    totals = {"a": 0.0}
    for x, y in batches():
        losses = {"a": model(x).mean()}
        totals = {k: totals[k] + losses[k] for k in losses}  # <-
fit(nn.Linear(8, 1))
""",
)
GRAPHS["dict of lists by literal"] = (
    "train",
    """
def fit(model):
    train, val = [], []
    for x, y in batches():
        {"train": train, "val": val}["train"].append(model(x))  # <-
fit(nn.Linear(8, 1))
""",
)
GRAPHS["thread local"] = (
    "tls.losses",
    """
import threading
tls = threading.local()
tls.losses = []
model = nn.Linear(8, 1)
for x, y in batches():
    tls.losses.append(model(x))  # <-
""",
)


@pytest.mark.parametrize("case", GRAPHS)
def test_names_who_keeps_old_graphs(case: str, tmp_path: Path) -> None:
    """The variable and the statement that keep graphs of earlier batches are named."""
    holder, script = GRAPHS[case]
    holders = run(script, tmp_path)
    assert holders, "nobody was named"
    first = holders[0]
    told = [(str(h), h.place.source) for h in holders]
    assert first.place.line in marked_lines(tmp_path / "script.py"), told
    assert first.place.file == str(tmp_path / "script.py")
    if holder is not None:
        assert first.place.holder == holder, told


def test_another_module_holds(tmp_path: Path) -> None:
    """A list in another module of the user's is found, and the line in the script that grows it."""
    script = """
    import state
    model = nn.Linear(8, 1)
    for x, y in batches():
        state.LOG.append(model(x))  # <-
    """
    holders = run(script, tmp_path, others={"state": "LOG = []\n"})
    assert holders[0].place.holder == "LOG"
    assert holders[0].place.line in marked_lines(tmp_path / "script.py")
