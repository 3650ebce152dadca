"""Who holds old graphs or outputs, in the many ways training scripts are written."""

from pathlib import Path

import pytest

from tests.evidence.scripts import marked_lines, run

GRAPHS: dict[str, tuple[str, str]] = {}
"""Name of the case -> (holder, script). The line that is to be named carries the mark."""

GRAPHS["extend"] = (
    "seen",
    """
def fit(model):
    seen = []
    for x, y in batches():
        out = model(x)
        seen.extend(out)  # <-
fit(nn.Linear(8, 1))
""",
)
GRAPHS["stack then keep"] = (
    "preds",
    """
def fit(model):
    preds = None
    for x, y in batches():
        out = model(x)
        preds = out if preds is None else torch.vstack((preds, out))  # <-
fit(nn.Linear(8, 1))
""",
)
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
GRAPHS["meter"] = (
    "AverageMeter.sum",
    """
class AverageMeter:
    def __init__(self):
        self.reset()
    def reset(self):
        self.sum = 0
        self.count = 0
        self.val = 0
    def update(self, val, n=1):
        self.val = val
        self.sum += val * n  # <-
        self.count += n
        self.avg = self.sum / self.count
def fit(model):
    meter = AverageMeter()
    for x, y in batches():
        loss = F.mse_loss(model(x), y)
        loss.backward()
        meter.update(loss, x.size(0))
fit(nn.Linear(8, 1))
""",
)
GRAPHS["inherited method"] = (
    "Sub.values",
    """
class Base:
    def __init__(self):
        self.values = []
    def add(self, v):
        self.values.append(v)  # <-
class Sub(Base):
    def mean(self):
        return sum(self.values) / len(self.values)
rec = Sub()
model = nn.Linear(8, 1)
for x, y in batches():
    rec.add(F.mse_loss(model(x), y))
""",
)
GRAPHS["forward hook closure"] = (
    "feats",
    """
def watch(model):
    feats = []
    def hook(module, args, output):
        feats.append(output)  # <-
    model[0].register_forward_hook(hook)
model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 1))
watch(model)
for x, y in batches():
    loss = F.mse_loss(model(x), y)
    loss.backward()
""",
)
GRAPHS["submodule attribute"] = (
    "Block.cache",
    """
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(8, 8)
        self.cache = {}
        self.n = 0
    def forward(self, x):
        out = self.lin(x)
        self.n += 1
        self.cache[self.n] = out  # <-
        return out
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block() for _ in range(3)])
        self.head = nn.Linear(8, 1)
    def forward(self, x):
        for b in self.blocks:
            x = b(x)
        return self.head(x)
def run(model):
    for x, y in batches():
        F.mse_loss(model(x), y).backward()
run(Net())
""",
)
GRAPHS["carried in the module"] = (
    "Rnn.h",
    """
class Rnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(8, 8)
        self.out = nn.Linear(8, 1)
        self.h = None
    def forward(self, x):
        if self.h is None:
            self.h = torch.zeros(x.size(0), 8)
        h = self.cell(x, self.h)
        self.h = h  # <-
        return self.out(h)
model = Rnn()
for x, y in batches():
    loss = F.mse_loss(model(x), y)
""",
)
GRAPHS["carried LSTM tuple"] = (
    "Lstm.hidden",
    """
class Lstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(8, 8, batch_first=True)
        self.hidden = None
    def forward(self, x):
        out, self.hidden = self.lstm(x.unsqueeze(1), self.hidden)  # <-
        return out
model = Lstm()
for x, y in batches():
    out = model(x)
    loss = out.pow(2).mean()
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
GRAPHS["partial"] = (
    "store",
    """
from functools import partial
def save(store, module, args, output):
    store.append(output)  # <-
def fit():
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 1))
    store = []
    model[0].register_forward_hook(partial(save, store))
    for x, y in batches():
        model(x)
fit()
""",
)
GRAPHS["context variable"] = (
    "trace",
    """
import contextvars
trace = contextvars.ContextVar("trace")
def fit(model):
    trace.set([])
    for x, y in batches():
        loss = F.mse_loss(model(x), y)
        trace.get().append(loss)  # <-
fit(nn.Linear(8, 1))
""",
)
GRAPHS["queue"] = (
    "q",
    """
import queue
def fit(model):
    q = queue.Queue()
    for x, y in batches():
        loss = F.mse_loss(model(x), y)
        q.put(loss)  # <-
fit(nn.Linear(8, 1))
""",
)
GRAPHS["lru cache"] = (
    "embed",
    """
from functools import lru_cache
model = nn.Linear(8, 1)
data = [torch.randn(1, 8) for _ in range(20)]
@lru_cache(maxsize=None)  # <-
def embed(i):
    return model(data[i])
for i in range(14):
    embed(i)
""",
)
GRAPHS["heap"] = (
    "best",
    """
import heapq
def fit(model):
    best = []
    for i, (x, y) in enumerate(batches()):
        loss = F.mse_loss(model(x), y)
        heapq.heappush(best, (i, loss))  # <-
fit(nn.Linear(8, 1))
""",
)
GRAPHS["list comprehension"] = (
    None,
    """
def evaluate(model):
    losses = [F.mse_loss(model(x), y) for x, y in batches()]  # <-
    return torch.stack(losses)
evaluate(nn.Linear(8, 1))
""",
)
GRAPHS["thread"] = (
    "seen",
    """
import threading
def work(model):
    seen = []
    for x, y in batches():
        seen.append(model(x))  # <-
t = threading.Thread(target=work, args=(nn.Linear(8, 1),))
t.start(); t.join()
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
GRAPHS["list subclass"] = (
    "history",
    """
class History(list):
    def log(self, value):
        self.append(value)  # <-
def fit(model):
    history = History()
    for x, y in batches():
        history.log(model(x))
fit(nn.Linear(8, 1))
""",
)
GRAPHS["setattr"] = (
    "Box.total",
    """
class Box: pass
def fit(model):
    box = Box()
    box.total = 0
    for x, y in batches():
        setattr(box, "total", box.total + model(x).mean())  # <-
fit(nn.Linear(8, 1))
""",
)
GRAPHS["linked list"] = (
    "head",
    """
class Node:
    def __init__(self, value, prev):
        self.value = value
        self.prev = prev
def fit(model):
    head = None
    for x, y in batches():
        head = Node(model(x), head)  # <-
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
GRAPHS["replay buffer"] = (
    "ReplayBuffer.memory",
    """
import random
from collections import deque, namedtuple
Transition = namedtuple("Transition", "state action value")
class ReplayBuffer:
    def __init__(self, capacity):
        self.memory = deque([], maxlen=capacity)
    def push(self, *args):
        self.memory.append(Transition(*args))  # <-
    def __len__(self):
        return len(self.memory)
class Agent:
    def __init__(self):
        self.net = nn.Linear(8, 1)
        self.buffer = ReplayBuffer(10000)
    def act(self, x):
        value = self.net(x)
        self.buffer.push(x, 0, value)
        return value
agent = Agent()
for x, y in batches():
    agent.act(x)
""",
)
GRAPHS["memory bank by cat"] = (
    "Bank.feats",
    """
class Bank:
    def __init__(self):
        self.feats = torch.empty(0, 1)
    def add(self, f):
        self.feats = torch.cat([self.feats, f], dim=0)[-1000:]  # <-
model, bank = nn.Linear(8, 1), Bank()
for x, y in batches():
    bank.add(model(x))
""",
)
GRAPHS["logger of metrics"] = (
    "Logger.data",
    """
from collections import defaultdict
class Logger:
    def __init__(self):
        self.data = defaultdict(list)
        self.step = 0
    def log_metrics(self, metrics, step=None):
        for k, v in metrics.items():
            self.data[k].append(v)  # <-
        self.step += 1
def fit(model, logger):
    for i, (x, y) in enumerate(batches()):
        loss = F.mse_loss(model(x), y)
        loss.backward()
        logger.log_metrics({"loss": loss, "lr": 0.1}, step=i)
fit(nn.Linear(8, 1), Logger())
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
GRAPHS["closure counter"] = (
    "total",
    """
def make_tracker():
    total = 0
    def add(value):
        nonlocal total
        total += value  # <-
        return total
    return add
add = make_tracker()
model = nn.Linear(8, 1)
for x, y in batches():
    add(model(x).mean())
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
GRAPHS["event handlers"] = (
    "outputs",
    """
class Engine:
    def __init__(self, step):
        self.step, self.handlers = step, []
    def on(self, fn):
        self.handlers.append(fn)
        return fn
    def run(self, loader):
        for batch in loader:
            self.output = self.step(batch)
            for handler in self.handlers:
                handler(self)
def main():
    model = nn.Linear(8, 1)
    engine = Engine(lambda b: F.mse_loss(model(b[0]), b[1]))
    outputs = []
    @engine.on
    def keep(engine):
        outputs.append(engine.output)  # <-
    engine.run(batches())
main()
""",
)
GRAPHS["stored exceptions"] = (
    "errors",
    """
def step(model, x):
    out = model(x)
    raise ValueError("bad batch")
def fit(model):
    errors = []
    for x, y in batches():
        try:
            step(model, x)
        except ValueError as e:
            errors.append(e)  # <-
fit(nn.Linear(8, 1))
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
