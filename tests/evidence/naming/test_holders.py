"""Who holds old graphs or outputs, in the many ways training scripts are written."""

import linecache
import sys
import types
import weakref
from pathlib import Path

import pytest
import torch
from torch import nn

from memguard.autograd.reach import Reach
from memguard.evidence.naming.holders import Holder, HolderSearch
from memguard.evidence.naming.names import user_files
from memguard.heap.frames import user_frames
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
GRAPHS["filled before the loop, too"] = (
    "history",
    """
def fit(model):
    history = []
    for _ in range(2):
        history.append(model(torch.ones(1, 8)).mean())
    for x, y in batches():
        loss = F.mse_loss(model(x), y)
        history.append(loss)  # <-
        loss.backward()
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
GRAPHS["buffers by number"] = (
    "Stats.seen_0",
    """
class Stats(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(8, 1)
    def forward(self, x):
        out = self.lin(x)
        self.register_buffer(f"seen_{len(self._buffers)}", out)  # <-
        return out
model = Stats()
for _ in range(4):
    for x, y in batches():
        model(x)
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


KEY = "tests.evidence.harmless"


def named_then_dropped() -> list[weakref.ref[torch.Tensor]]:
    """Names the holder of three losses, drops them, and returns weak references to them."""
    model = nn.Linear(4, 1)
    kept = []
    for _ in range(3):
        loss = model(torch.ones(2, 4)).sum()
        assert loss.grad_fn is not None
        loss.grad_fn.metadata[KEY] = "old"
        kept.append(loss)
    del loss
    reach = Reach(KEY, lambda mark: mark == "old")
    (holder,) = HolderSearch(models=[model]).find(reach, passes=reach.passes)
    del reach
    assert (holder.place.holder, holder.tensors, holder.length) == ("kept", 3, 3)
    refs = [weakref.ref(tensor) for tensor in kept]
    del kept
    return refs


def test_tensors_die_with_their_last_name_after_naming(without_collector: None) -> None:
    """No reference to a tensor stays in a frame, a cache or a cycle; the collector is not needed."""
    assert [ref() for ref in named_then_dropped()] == [None, None, None]


def test_the_collectors_way_leaves_nothing_either(without_collector: None) -> None:
    """Asking the garbage collector for referrers keeps nothing alive, found or not."""

    def hide() -> weakref.ref[torch.Tensor]:
        tensor = torch.ones(3)
        HolderSearch().find(lambda other: None, graph=False)
        return weakref.ref(tensor)

    assert hide()() is None


def test_no_module_attribute_is_touched() -> None:
    """A module with a `__getattr__` of its own is not asked for anything while files are listed."""
    import types

    class Lazy(types.ModuleType):
        def __getattribute__(self, name: str) -> object:
            raise AssertionError(f"{name} was asked for")

    sys.modules["lazy_for_this_test"] = Lazy("lazy_for_this_test")
    try:
        assert __file__ in user_files()
    finally:
        del sys.modules["lazy_for_this_test"]


def test_judge_that_knows_nobody() -> None:
    """Without a tensor that matters nobody is named."""
    assert HolderSearch().find(lambda tensor: None, collector=False) == ()


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
