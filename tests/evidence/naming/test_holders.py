"""Who holds old graphs or outputs, in the many ways training scripts are written."""

from pathlib import Path

import pytest

from memguard.records.stats import Stage
from tests.evidence.scripts import marked_lines, run

GRAPHS: dict[str, tuple[str, str]] = {}
"""Name of the case -> (holder, script). The line that is to be named carries the mark."""

GRAPHS["module level sum"] = (
    "total",
    """
model = nn.Linear(8, 1)
opt = torch.optim.SGD(model.parameters(), 0.1)
total = 0.0
for x, y in batches():
    loss = F.mse_loss(model(x), y)
    opt.zero_grad(); loss.backward(); opt.step()
    total += loss  # <-
""",
)
GRAPHS["sum in a function"] = (
    "running",
    """
def train(model, loader):
    running = 0
    seen = 0
    for x, y in loader:
        out = model(x)
        loss = F.mse_loss(out, y)
        loss.backward()
        running = running + loss * x.size(0)  # <-
        seen += x.size(0)
    return running / seen
train(nn.Linear(8, 1), batches())
""",
)
GRAPHS["list of losses"] = (
    "history",
    """
def main():
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))
    history = []
    times = []
    for step, (x, y) in enumerate(batches()):
        loss = F.mse_loss(model(x), y)
        loss.backward()
        times.append(step)
        history.append(loss)  # <-
main()
""",
)
GRAPHS["item beside tensor"] = (
    "kept",
    """
def main():
    model = nn.Linear(8, 1)
    logged, kept = [], []
    for x, y in batches():
        loss = F.mse_loss(model(x), y)
        logged.append(loss.item())
        kept.append(loss)  # <-
main()
""",
)
GRAPHS["dict of lists"] = (
    "logs",
    """
def main():
    model = nn.Linear(8, 1)
    logs = {"loss": [], "acc": []}
    for x, y in batches():
        out = model(x)
        loss = F.mse_loss(out, y)
        logs["acc"].append((out > 0).float().mean().item())
        logs["loss"].append(loss)  # <-
main()
""",
)
GRAPHS["two keys, one guilty"] = (
    "logs",
    """
from collections import defaultdict
logs = defaultdict(list)
model = nn.Linear(8, 1)
for x, y in batches():
    out = model(x)
    loss = F.mse_loss(out, y)
    logs["clean"].append(out.detach())
    logs["dirty"].append(out)  # <-
""",
)
GRAPHS["dict by step"] = (
    "cache",
    """
def fit(model):
    cache = {}
    for i, (x, y) in enumerate(batches()):
        out = model(x)
        cache[i] = out  # <-
        F.mse_loss(out, y).backward()
fit(nn.Linear(8, 1))
""",
)
GRAPHS["dict of sums"] = (
    "stats",
    """
def fit(model):
    stats = {"loss": 0.0, "n": 0}
    for x, y in batches():
        loss = F.mse_loss(model(x), y)
        loss.backward()
        stats["n"] += 1
        stats["loss"] += loss  # <-
fit(nn.Linear(8, 1))
""",
)
GRAPHS["dict of sums by get"] = (
    "sums",
    """
def fit(model):
    sums = {}
    for x, y in batches():
        losses = {"mse": F.mse_loss(model(x), y)}
        losses["mse"].backward()
        for k, v in losses.items():
            sums[k] = sums.get(k, 0) + v  # <-
fit(nn.Linear(8, 1))
""",
)
GRAPHS["setdefault"] = (
    "table",
    """
def fit(model):
    table = {}
    for i, (x, y) in enumerate(batches()):
        loss = F.mse_loss(model(x), y)
        table.setdefault("loss", []).append(loss)  # <-
fit(nn.Linear(8, 1))
""",
)
GRAPHS["list of dicts"] = (
    "outputs",
    """
def fit(model):
    outputs = []
    for i, (x, y) in enumerate(batches()):
        out = model(x)
        outputs.append({  # <-
            "step": i,
            "logits": out,
        })
fit(nn.Linear(8, 1))
""",
)
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
GRAPHS["plus equals a list"] = (
    "seen",
    """
def fit(model):
    seen = []
    for x, y in batches():
        out = model(x)
        seen += [out]  # <-
fit(nn.Linear(8, 1))
""",
)
GRAPHS["list rebuilt"] = (
    "seen",
    """
def fit(model):
    seen = []
    for x, y in batches():
        seen = [*seen, model(x)]  # <-
fit(nn.Linear(8, 1))
""",
)
GRAPHS["insert"] = (
    "stack",
    """
def fit(model):
    stack = []
    for x, y in batches():
        stack.insert(0, model(x))  # <-
fit(nn.Linear(8, 1))
""",
)
GRAPHS["deque"] = (
    "window",
    """
from collections import deque
def fit(model):
    window = deque(maxlen=1000)
    for x, y in batches():
        loss = F.mse_loss(model(x), y)
        window.appendleft(loss)  # <-
fit(nn.Linear(8, 1))
""",
)
GRAPHS["set"] = (
    "bag",
    """
def fit(model):
    bag = set()
    for x, y in batches():
        loss = F.mse_loss(model(x), y)
        bag.add(loss)  # <-
fit(nn.Linear(8, 1))
""",
)
GRAPHS["tuple grows"] = (
    "trace",
    """
def fit(model):
    trace = ()
    for x, y in batches():
        loss = F.mse_loss(model(x), y)
        trace += (loss,)  # <-
fit(nn.Linear(8, 1))
""",
)
GRAPHS["torch.cat"] = (
    "preds",
    """
def fit(model):
    preds = torch.empty(0, 1)
    for x, y in batches():
        out = model(x)
        preds = torch.cat([preds, out])  # <-
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
GRAPHS["moving average"] = (
    "ema",
    """
def fit(model):
    ema = None
    for x, y in batches():
        loss = F.mse_loss(model(x), y)
        if ema is None:
            ema = loss
        else:
            ema = 0.9 * ema + 0.1 * loss  # <-
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
GRAPHS["written into a buffer tensor"] = (
    "table",
    """
def fit(model):
    table = torch.zeros(20)
    for i, (x, y) in enumerate(batches()):
        loss = F.mse_loss(model(x), y)
        table[i] = loss  # <-
fit(nn.Linear(8, 1))
""",
)
GRAPHS["walrus"] = (
    "total",
    """
def fit(model):
    total = 0
    for x, y in batches():
        if (total := total + F.mse_loss(model(x), y)) is None:  # <-
            break
fit(nn.Linear(8, 1))
""",
)
GRAPHS["global list in a function"] = (
    "LOG",
    """
LOG = []
def step(model, x, y):
    loss = F.mse_loss(model(x), y)
    LOG.append(loss)  # <-
    return loss
def main():
    model = nn.Linear(8, 1)
    for x, y in batches():
        step(model, x, y).backward()
main()
""",
)
GRAPHS["global statement"] = (
    "TOTAL",
    """
TOTAL = 0
def step(model, x, y):
    global TOTAL
    loss = F.mse_loss(model(x), y)
    TOTAL = TOTAL + loss  # <-
    return loss
model = nn.Linear(8, 1)
for x, y in batches():
    step(model, x, y).backward()
""",
)
GRAPHS["nonlocal"] = (
    "total",
    """
def fit(model):
    total = 0
    def step(x, y):
        nonlocal total
        loss = F.mse_loss(model(x), y)
        loss.backward()
        total += loss  # <-
    for x, y in batches():
        step(x, y)
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
GRAPHS["default argument"] = (
    "seen",
    """
def remember(loss, seen=[]):
    seen.append(loss)  # <-
    return len(seen)
model = nn.Linear(8, 1)
for x, y in batches():
    loss = F.mse_loss(model(x), y)
    remember(loss)
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
GRAPHS["alias of an attribute"] = (
    "Trainer.log_list",
    """
class Trainer:
    def __init__(self):
        self.model = nn.Linear(8, 1)
        self.log_list = []
    def fit(self):
        log = self.log_list
        for x, y in batches():
            loss = F.mse_loss(self.model(x), y)
            log.append(loss)  # <-
Trainer().fit()
""",
)
GRAPHS["bound method alias"] = (
    "hist",
    """
def fit(model):
    hist = []
    push = hist.append
    for x, y in batches():
        push(F.mse_loss(model(x), y))  # <-
fit(nn.Linear(8, 1))
""",
)
GRAPHS["trainer attribute"] = (
    "Trainer.losses",
    """
class Trainer:
    def __init__(self, model):
        self.model = model
        self.losses = []
        self.opt = torch.optim.Adam(model.parameters())
    def step(self, x, y):
        self.opt.zero_grad()
        loss = F.mse_loss(self.model(x), y)
        loss.backward()
        self.opt.step()
        self.losses.append(loss)  # <-
    def fit(self):
        for x, y in batches():
            self.step(x, y)
Trainer(nn.Linear(8, 1)).fit()
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
GRAPHS["nested objects"] = (
    "Meters.loss",
    """
class Meters:
    def __init__(self):
        self.loss = []
        self.acc = []
class State:
    def __init__(self):
        self.meters = Meters()
class Runner:
    def __init__(self):
        self.state = State()
        self.model = nn.Linear(8, 1)
    def run(self):
        for x, y in batches():
            out = self.model(x)
            loss = F.mse_loss(out, y)
            self.state.meters.acc.append(0.5)
            self.state.meters.loss.append(loss)  # <-
Runner().run()
""",
)
GRAPHS["dataclass with slots"] = (
    "Record.losses",
    """
from dataclasses import dataclass, field
@dataclass(slots=True)
class Record:
    losses: list = field(default_factory=list)
    steps: int = 0
def fit(model):
    record = Record()
    for x, y in batches():
        record.steps += 1
        record.losses.append(F.mse_loss(model(x), y))  # <-
fit(nn.Linear(8, 1))
""",
)
GRAPHS["class attribute"] = (
    "Tracker.all",
    """
class Tracker:
    all = []
    @classmethod
    def track(cls, value):
        cls.all.append(value)  # <-
model = nn.Linear(8, 1)
for x, y in batches():
    Tracker.track(model(x))
""",
)
GRAPHS["namespace object"] = (
    "state.total",
    """
from types import SimpleNamespace
def fit(model):
    state = SimpleNamespace(total=0, n=0)
    for x, y in batches():
        loss = F.mse_loss(model(x), y)
        state.n += 1
        state.total += loss  # <-
fit(nn.Linear(8, 1))
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
GRAPHS["lambda hook"] = (
    "feats",
    """
def fit():
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 1))
    feats = []
    model[0].register_forward_hook(lambda m, i, o: feats.append(o))  # <-
    for x, y in batches():
        model(x).sum().backward()
fit()
""",
)
GRAPHS["hook object"] = (
    "Catcher.stored",
    """
class Catcher:
    def __init__(self):
        self.stored = {}
    def __call__(self, module, args, output):
        self.stored.setdefault(type(module).__name__, []).append(output)  # <-
model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 1))
model[0].register_forward_hook(Catcher())
for x, y in batches():
    model(x).sum().backward()
""",
)
GRAPHS["hook by name"] = (
    "acts",
    """
acts = {}
def make_hook(name):
    def hook(module, args, output):
        acts.setdefault(name, []).append(output)  # <-
    return hook
model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))
for name, layer in model.named_children():
    layer.register_forward_hook(make_hook(name))
for x, y in batches():
    model(x).sum().backward()
""",
)
GRAPHS["model attribute"] = (
    "Net.aux",
    """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 1)
        self.aux = []
    def forward(self, x):
        h = self.a(x)
        self.aux.append(h.mean())  # <-
        return self.b(h)
model = Net()
for x, y in batches():
    model(x).sum().backward()
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
GRAPHS["carried hidden state"] = (
    "hidden",
    """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(8, 8)
        self.out = nn.Linear(8, 1)
    def forward(self, x, h):
        h = self.cell(x, h)
        return self.out(h), h
def fit(model):
    hidden = torch.zeros(4, 8)
    for x, y in batches():
        pred, hidden = model(x, hidden)  # <-
        loss = F.mse_loss(pred, y)
fit(Net())
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
GRAPHS["carried in a buffer"] = (
    "Memory.state",
    """
class Memory(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(16, 8)
        self.register_buffer("state", torch.zeros(4, 8))
    def forward(self, x):
        self.state = torch.tanh(self.lin(torch.cat([x, self.state], 1)))  # <-
        return self.state
def fit(model):
    for x, y in batches():
        loss = model(x).mean()
fit(Memory())
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
GRAPHS["carried through two names"] = (
    "state",
    """
def fit(cell, head):
    state = torch.zeros(4, 8)
    for x, y in batches():
        new_state = cell(x, state)
        loss = F.mse_loss(head(new_state), y)
        state = new_state  # <-
fit(nn.GRUCell(8, 8), nn.Linear(8, 1))
""",
)
GRAPHS["lit module"] = (
    "Lit.outs",
    """
class Lit(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(8, 1)
        self.outs = []
    def forward(self, x):
        return self.net(x)
    def training_step(self, batch, i):
        x, y = batch
        loss = F.mse_loss(self(x), y)
        self.outs.append({"loss": loss, "i": i})  # <-
        return loss
    def on_train_epoch_end(self):
        self.outs.clear()
def fit(lit):
    for i, b in enumerate(batches()):
        lit.training_step(b, i).backward()
fit(Lit())
""",
)
GRAPHS["running sum in a lit module"] = (
    "Lit.run",
    """
class Lit(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(8, 1)
        self.run = 0.0
    def training_step(self, batch, i):
        x, y = batch
        loss = F.mse_loss(self.net(x), y)
        self.run = self.run + loss  # <-
        return loss
lit = Lit()
for i, b in enumerate(batches()):
    lit.training_step(b, i).backward()
""",
)
GRAPHS["generator that collects"] = (
    "kept",
    """
def steps(model):
    kept = []
    for x, y in batches():
        loss = F.mse_loss(model(x), y)
        kept.append(loss)  # <-
        yield loss
def fit(model):
    for loss in steps(model):
        loss.backward()
fit(nn.Linear(8, 1))
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
GRAPHS["sum of a generator"] = (
    None,
    """
def evaluate(model):
    return 1
model = nn.Linear(8, 1)
total = sum(F.mse_loss(model(x), y) for x, y in batches())  # <-
""",
)
GRAPHS["comprehension appends"] = (
    "bag",
    """
def fit(model):
    bag = []
    [bag.append(model(x)) for x, y in batches()]  # <-
fit(nn.Linear(8, 1))
""",
)
GRAPHS["async"] = (
    "seen",
    """
import asyncio
async def work(model):
    seen = []
    for x, y in batches():
        await asyncio.sleep(0)
        seen.append(model(x))  # <-
asyncio.run(work(nn.Linear(8, 1)))
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
GRAPHS["loop over a zip of lists"] = (
    "per_head",
    """
class Heads(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 1), nn.Linear(8, 1)
    def forward(self, x):
        return self.a(x), self.b(x)
def fit(model):
    per_head = [[], []]
    for x, y in batches():
        outs = model(x)
        for store, out in zip(per_head, outs):
            store.append(out)  # <-
fit(Heads())
""",
)
GRAPHS["conditional log"] = (
    "Trainer.metrics",
    """
class Trainer:
    def __init__(self):
        self.model = nn.Linear(8, 1)
        self.metrics = {"train": {"loss": []}, "val": {"loss": []}}
    def log(self, split, name, value):
        self.metrics[split][name].append(value)  # <-
    def fit(self):
        for x, y in batches():
            loss = F.mse_loss(self.model(x), y)
            loss.backward()
            self.log("train", "loss", loss)
Trainer().fit()
""",
)
GRAPHS["two sums"] = (
    "d_total",
    """
def fit(G, D):
    d_total, g_total = 0, 0
    for x, y in batches():
        d_loss = D(G(x).detach()).mean()
        g_loss = D(G(x)).mean()
        d_total += d_loss  # <-
        g_total += g_loss.item()
fit(nn.Linear(8, 8), nn.Linear(8, 1))
""",
)
GRAPHS["dict update"] = (
    "outs",
    """
def fit(model):
    outs = {}
    for i, (x, y) in enumerate(batches()):
        outs.update({i: model(x)})  # <-
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
GRAPHS["chained targets"] = (
    "total",
    """
def fit(model):
    total = 0
    for x, y in batches():
        loss = total = total + F.mse_loss(model(x), y)  # <-
fit(nn.Linear(8, 1))
""",
)
GRAPHS["loss plus sum, logged mean"] = (
    "epoch_loss",
    """
def run_epoch(model, loader, opt):
    epoch_loss = torch.tensor(0.0)
    for i, (x, y) in enumerate(loader):
        opt.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        opt.step()
        epoch_loss += loss  # <-
        avg = epoch_loss / (i + 1)
    return avg
m = nn.Linear(8, 1)
run_epoch(m, batches(), torch.optim.SGD(m.parameters(), 0.1))
""",
)
GRAPHS["tuples in a list"] = (
    "past",
    """
def fit(model):
    past = []
    for x, y in batches():
        out = model(x)
        past.append((x, y, out))  # <-
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
GRAPHS["list of records"] = (
    "results",
    """
from dataclasses import dataclass
@dataclass
class Result:
    step: int
    loss: torch.Tensor
def fit(model):
    results = []
    for i, (x, y) in enumerate(batches()):
        loss = F.mse_loss(model(x), y)
        results.append(Result(i, loss))  # <-
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
GRAPHS["transformer memories"] = (
    "mems",
    """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(8, 8)
    def forward(self, x, *mems):
        h = self.lin(x) + sum(mems)
        return h.mean(), h
def fit(model):
    mems = ()
    for x, y in batches():
        ret = model(x, *mems)
        loss, mems = ret[0], ret[1:]  # <-
fit(Model())
""",
)
GRAPHS["states in a dict"] = (
    "states",
    """
def fit(cell):
    states = {}
    for i, (x, y) in enumerate(batches()):
        h = states.get("env0", torch.zeros(4, 8))
        h = cell(x, h)
        states["env0"] = h  # <-
fit(nn.GRUCell(8, 8))
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
GRAPHS["policy gradient"] = (
    "Policy.saved_log_probs",
    """
class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.affine = nn.Linear(8, 2)
        self.saved_log_probs = []
        self.rewards = []
    def forward(self, x):
        return F.softmax(self.affine(x), dim=1)
def select_action(policy, state):
    probs = policy(state)
    m = torch.distributions.Categorical(probs)
    action = m.sample()
    policy.saved_log_probs.append(m.log_prob(action))  # <-
    return action
policy = Policy()
for x, y in batches():
    select_action(policy, x)
    policy.rewards.append(1.0)
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
GRAPHS["teacher centre"] = (
    "DinoLoss.center",
    """
class DinoLoss(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("center", torch.zeros(1, 1))
    def forward(self, s, t):
        loss = -(F.softmax(t - self.center, -1) * F.log_softmax(s, -1)).sum(-1).mean()
        self.update_center(t)
        return loss
    def update_center(self, t):
        batch_center = t.mean(0, keepdim=True)
        self.center = self.center * 0.9 + batch_center * 0.1  # <-
def fit(student, teacher, criterion):
    for x, y in batches():
        loss = criterion(student(x), teacher(x))
fit(nn.Linear(8, 1), nn.Linear(8, 1), DinoLoss())
""",
)
GRAPHS["memory queue by slices"] = (
    "Moco.queue",
    """
class Moco(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Linear(8, 4)
        self.register_buffer("queue", torch.zeros(4, 64))
        self.ptr = 0
    def enqueue(self, keys):
        n = keys.size(0)
        self.queue[:, self.ptr:self.ptr + n] = keys.T  # <-
        self.ptr = (self.ptr + n) % 64
    def forward(self, x):
        k = self.enc(x)
        out = k @ self.queue.clone()
        self.enqueue(k)
        return out
model = Moco()
for x, y in batches():
    model(x)
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
GRAPHS["smoothed values"] = (
    "SmoothedValue.total",
    """
from collections import defaultdict, deque
class SmoothedValue:
    def __init__(self, window=5):
        self.deque = deque(maxlen=window)
        self.total = 0.0
        self.count = 0
    def update(self, value, n=1):
        self.deque.append(value.item() if n > 1 else 0.0)
        self.count += n
        self.total += value * n  # <-
class MetricLogger:
    def __init__(self):
        self.meters = defaultdict(SmoothedValue)
    def update(self, **kwargs):
        for k, v in kwargs.items():
            self.meters[k].update(v)
def train_one_epoch(model, loader):
    metric_logger = MetricLogger()
    for x, y in loader:
        loss = F.mse_loss(model(x), y)
        loss.backward()
        metric_logger.update(loss=loss, lr=0.1)
train_one_epoch(nn.Linear(8, 1), batches())
""",
)
GRAPHS["sums by key in a loop"] = (
    "epoch_losses",
    """
def fit(model):
    epoch_losses = {"a": 0.0, "b": 0.0}
    for x, y in batches():
        out = model(x)
        losses = {"a": out.mean(), "b": (out - y).abs().mean()}
        sum(losses.values()).backward()
        for key in losses:
            epoch_losses[key] += losses[key]  # <-
fit(nn.Linear(8, 1))
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
GRAPHS["decorator that remembers"] = (
    "results",
    """
import functools
def remember(fn):
    results = []
    @functools.wraps(fn)
    def wrapper(*args):
        result = fn(*args)
        results.append(result)  # <-
        return result
    return wrapper
@remember
def step(model, x, y):
    return F.mse_loss(model(x), y)
model = nn.Linear(8, 1)
for x, y in batches():
    step(model, x, y)
""",
)
GRAPHS["closure of LBFGS"] = (
    "trace",
    """
def fit(model):
    opt = torch.optim.LBFGS(model.parameters(), max_iter=2)
    trace = []
    for x, y in batches():
        def closure():
            opt.zero_grad()
            loss = F.mse_loss(model(x), y)
            loss.backward()
            trace.append(loss)  # <-
            return loss
        opt.step(closure)
fit(nn.Linear(8, 1))
""",
)
GRAPHS["loss module that remembers"] = (
    "Criterion.history",
    """
class Criterion(nn.Module):
    def __init__(self):
        super().__init__()
        self.history = []
    def forward(self, out, y):
        loss = F.mse_loss(out, y)
        self.history.append(loss)  # <-
        return loss
def fit(model, criterion):
    for x, y in batches():
        criterion(model(x), y).backward()
fit(nn.Linear(8, 1), Criterion())
""",
)
GRAPHS["either of two lists"] = (
    "train_hist",
    """
def fit(model):
    train_hist, val_hist = [], []
    for i, (x, y) in enumerate(batches()):
        (train_hist if i >= 0 else val_hist).append(model(x))  # <-
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
GRAPHS["attribute dict"] = (
    "state",
    """
class AttrDict(dict):
    __getattr__ = dict.__getitem__
    __setattr__ = dict.__setitem__
def fit(model):
    state = AttrDict(total=0, n=0)
    for x, y in batches():
        state.n += 1
        state.total += model(x).mean()  # <-
fit(nn.Linear(8, 1))
""",
)
GRAPHS["attribute dict of lists"] = (
    "logs",
    """
class Munch(dict):
    __getattr__ = dict.__getitem__
def fit(model):
    logs = Munch(loss=[], lr=[])
    for x, y in batches():
        logs.lr.append(0.1)
        logs.loss.append(model(x).mean())  # <-
fit(nn.Linear(8, 1))
""",
)
GRAPHS["type of self"] = (
    "Tracker.history",
    """
class Tracker:
    history = []
    def add(self, v):
        type(self).history.append(v)  # <-
t = Tracker()
model = nn.Linear(8, 1)
for x, y in batches():
    t.add(model(x))
""",
)
GRAPHS["operator"] = (
    "Meter.values",
    """
class Meter:
    def __init__(self):
        self.values = []
    def __iadd__(self, v):
        self.values.append(v)  # <-
        return self
def fit(model):
    meter = Meter()
    for x, y in batches():
        meter += model(x).mean()
fit(nn.Linear(8, 1))
""",
)
GRAPHS["named tuple replaced"] = (
    "state",
    """
from typing import NamedTuple
class State(NamedTuple):
    loss: object
    n: int
def fit(model):
    state = State(torch.zeros(()), 0)
    for x, y in batches():
        state = state._replace(loss=state.loss + model(x).mean(), n=state.n + 1)  # <-
fit(nn.Linear(8, 1))
""",
)
GRAPHS["last element's list"] = (
    "epochs",
    """
def fit(model):
    epochs = []
    for epoch in range(2):
        epochs.append([])
        for x, y in batches(7):
            loss = F.mse_loss(model(x), y)
            epochs[-1].append(loss)  # <-
fit(nn.Linear(8, 1))
""",
)
GRAPHS["epoch results"] = (
    "epoch_outputs",
    """
def train_epoch(model):
    epoch_outputs = []
    it = iter(batches())
    while True:
        try:
            x, y = next(it)
        except StopIteration:
            break
        out = model(x)
        loss = F.mse_loss(out, y)
        loss.backward()
        batch = {"x": x, "y": y}
        batch["out"] = out
        epoch_outputs.append(batch)  # <-
    return epoch_outputs
train_epoch(nn.Linear(8, 1))
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
GRAPHS["second level attribute"] = (
    "Trainer.callback_metrics",
    """
class Trainer:
    def __init__(self):
        self.callback_metrics = {}
        self.n = 0
class Lit(nn.Module):
    def __init__(self, trainer):
        super().__init__()
        self.net = nn.Linear(8, 1)
        self.trainer = trainer
    def training_step(self, x):
        loss = self.net(x).mean()
        self.trainer.n += 1
        self.trainer.callback_metrics[self.trainer.n] = loss  # <-
        return loss
lit = Lit(Trainer())
for x, y in batches():
    lit.training_step(x)
""",
)
GRAPHS["running average by division"] = (
    "Ray._total_loss",
    """
class Ray:
    def __init__(self, model):
        self.model = model
        self._total_loss = None
        self._steps = 0
    def learn(self, batch):
        x, y = batch
        loss = F.mse_loss(self.model(x), y)
        if self._total_loss is None:
            self._total_loss = loss
        else:
            self._total_loss = (self._total_loss * self._steps + loss) / (self._steps + 1)  # <-
        self._steps += 1
worker = Ray(nn.Linear(8, 1))
for b in batches():
    worker.learn(b)
""",
)
GRAPHS["dict of tuples"] = (
    "best",
    """
def fit(model):
    best = {}
    for i, (x, y) in enumerate(batches()):
        out = model(x)
        best[f"step{i}"] = (i, out.mean())  # <-
fit(nn.Linear(8, 1))
""",
)
GRAPHS["two functions, one grows"] = (
    "seen",
    """
seen = []
def show():
    for s in seen:
        pass
    seen2 = list(seen)
    return len(seen2)
def add(out):
    if out.sum() != 0:
        seen.append(out)  # <-
model = nn.Linear(8, 1)
for x, y in batches():
    add(model(x))
    show()
""",
)
GRAPHS["no_grad twin"] = (
    "Learner.losses",
    """
class Learner:
    def __init__(self):
        self.model = nn.Linear(8, 1)
        self.losses = []
    @torch.no_grad()
    def evaluate(self, x, y):
        self.losses.append(F.mse_loss(self.model(x), y))
    def train(self, x, y):
        loss = F.mse_loss(self.model(x), y)
        loss.backward()
        self.losses.append(loss)  # <-
learner = Learner()
for x, y in batches():
    learner.train(x, y)
""",
)
GRAPHS["multi line"] = (
    "Trainer.history",
    """
class Trainer:
    def __init__(self):
        self.history = {}
        self.model = nn.Sequential(
            nn.Linear(8, 8),
            nn.Linear(8, 1),
        )
    def log(self, **values):
        for name, value in values.items():
            if name not in self.history:
                self.history[name] = []
            self.history[name] += [  # <-
                value,
            ]
    def run(self):
        for x, y in batches():
            loss = F.mse_loss(
                self.model(x),
                y,
            )
            self.log(
                loss=loss,
            )
Trainer().run()
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


def test_stage_decides_between_two_statements(tmp_path: Path) -> None:
    """Where two methods grow the same list, the one of the stage that ran is named."""
    script = """
    class Lit(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Linear(8, 1)
            self.outs = []
        def training_step(self, x):
            out = self.net(x)
            self.outs.append(out)
            return out
        def validation_step(self, x):
            out = self.net(x)
            self.outs.append(out)  # <-
            return out
    lit = Lit().eval()
    for x, y in batches():
        lit.validation_step(x)
    """
    holders = run(script, tmp_path, stage=Stage.VALIDATION)
    assert holders[0].place.line in marked_lines(tmp_path / "script.py")
