"""Who holds old graphs or outputs, in the many ways training scripts are written."""

from pathlib import Path

import pytest

from memguard.stats import Stage
from tests.probes.scripts import marked_lines, run

GRAPHS: dict[str, tuple[str, str]] = {}
"""Name of the case -> (holder, script). The line that is to be named carries the mark."""

GRAPHS["module level sum"] = ("total", """
model = nn.Linear(8, 1)
opt = torch.optim.SGD(model.parameters(), 0.1)
total = 0.0
for x, y in batches():
    loss = F.mse_loss(model(x), y)
    opt.zero_grad(); loss.backward(); opt.step()
    total += loss  # <-
""")
GRAPHS["sum in a function"] = ("running", """
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
""")
GRAPHS["list of losses"] = ("history", """
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
""")
GRAPHS["item beside tensor"] = ("kept", """
def main():
    model = nn.Linear(8, 1)
    logged, kept = [], []
    for x, y in batches():
        loss = F.mse_loss(model(x), y)
        logged.append(loss.item())
        kept.append(loss)  # <-
main()
""")
GRAPHS["dict of lists"] = ("logs", """
def main():
    model = nn.Linear(8, 1)
    logs = {"loss": [], "acc": []}
    for x, y in batches():
        out = model(x)
        loss = F.mse_loss(out, y)
        logs["acc"].append((out > 0).float().mean().item())
        logs["loss"].append(loss)  # <-
main()
""")
GRAPHS["two keys, one guilty"] = ("logs", """
from collections import defaultdict
logs = defaultdict(list)
model = nn.Linear(8, 1)
for x, y in batches():
    out = model(x)
    loss = F.mse_loss(out, y)
    logs["clean"].append(out.detach())
    logs["dirty"].append(out)  # <-
""")
GRAPHS["dict by step"] = ("cache", """
def fit(model):
    cache = {}
    for i, (x, y) in enumerate(batches()):
        out = model(x)
        cache[i] = out  # <-
        F.mse_loss(out, y).backward()
fit(nn.Linear(8, 1))
""")
GRAPHS["dict of sums"] = ("stats", """
def fit(model):
    stats = {"loss": 0.0, "n": 0}
    for x, y in batches():
        loss = F.mse_loss(model(x), y)
        loss.backward()
        stats["n"] += 1
        stats["loss"] += loss  # <-
fit(nn.Linear(8, 1))
""")
GRAPHS["dict of sums by get"] = ("sums", """
def fit(model):
    sums = {}
    for x, y in batches():
        losses = {"mse": F.mse_loss(model(x), y)}
        losses["mse"].backward()
        for k, v in losses.items():
            sums[k] = sums.get(k, 0) + v  # <-
fit(nn.Linear(8, 1))
""")
GRAPHS["setdefault"] = ("table", """
def fit(model):
    table = {}
    for i, (x, y) in enumerate(batches()):
        loss = F.mse_loss(model(x), y)
        table.setdefault("loss", []).append(loss)  # <-
fit(nn.Linear(8, 1))
""")
GRAPHS["list of dicts"] = ("outputs", """
def fit(model):
    outputs = []
    for i, (x, y) in enumerate(batches()):
        out = model(x)
        outputs.append({  # <-
            "step": i,
            "logits": out,
        })
fit(nn.Linear(8, 1))
""")
GRAPHS["extend"] = ("seen", """
def fit(model):
    seen = []
    for x, y in batches():
        out = model(x)
        seen.extend(out)  # <-
fit(nn.Linear(8, 1))
""")
GRAPHS["plus equals a list"] = ("seen", """
def fit(model):
    seen = []
    for x, y in batches():
        out = model(x)
        seen += [out]  # <-
fit(nn.Linear(8, 1))
""")
GRAPHS["list rebuilt"] = ("seen", """
def fit(model):
    seen = []
    for x, y in batches():
        seen = [*seen, model(x)]  # <-
fit(nn.Linear(8, 1))
""")
GRAPHS["insert"] = ("stack", """
def fit(model):
    stack = []
    for x, y in batches():
        stack.insert(0, model(x))  # <-
fit(nn.Linear(8, 1))
""")
GRAPHS["deque"] = ("window", """
from collections import deque
def fit(model):
    window = deque(maxlen=1000)
    for x, y in batches():
        loss = F.mse_loss(model(x), y)
        window.appendleft(loss)  # <-
fit(nn.Linear(8, 1))
""")
GRAPHS["set"] = ("bag", """
def fit(model):
    bag = set()
    for x, y in batches():
        loss = F.mse_loss(model(x), y)
        bag.add(loss)  # <-
fit(nn.Linear(8, 1))
""")
GRAPHS["tuple grows"] = ("trace", """
def fit(model):
    trace = ()
    for x, y in batches():
        loss = F.mse_loss(model(x), y)
        trace += (loss,)  # <-
fit(nn.Linear(8, 1))
""")
GRAPHS["torch.cat"] = ("preds", """
def fit(model):
    preds = torch.empty(0, 1)
    for x, y in batches():
        out = model(x)
        preds = torch.cat([preds, out])  # <-
fit(nn.Linear(8, 1))
""")
GRAPHS["stack then keep"] = ("preds", """
def fit(model):
    preds = None
    for x, y in batches():
        out = model(x)
        preds = out if preds is None else torch.vstack((preds, out))  # <-
fit(nn.Linear(8, 1))
""")
GRAPHS["moving average"] = ("ema", """
def fit(model):
    ema = None
    for x, y in batches():
        loss = F.mse_loss(model(x), y)
        if ema is None:
            ema = loss
        else:
            ema = 0.9 * ema + 0.1 * loss  # <-
fit(nn.Linear(8, 1))
""")
GRAPHS["in-place add"] = ("acc", """
def fit(model):
    acc = torch.zeros(())
    for x, y in batches():
        loss = F.mse_loss(model(x), y)
        acc.add_(loss)  # <-
fit(nn.Linear(8, 1))
""")
GRAPHS["written into a buffer tensor"] = ("table", """
def fit(model):
    table = torch.zeros(20)
    for i, (x, y) in enumerate(batches()):
        loss = F.mse_loss(model(x), y)
        table[i] = loss  # <-
fit(nn.Linear(8, 1))
""")
GRAPHS["walrus"] = ("total", """
def fit(model):
    total = 0
    for x, y in batches():
        if (total := total + F.mse_loss(model(x), y)) is None:  # <-
            break
fit(nn.Linear(8, 1))
""")
GRAPHS["global list in a function"] = ("LOG", """
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
""")
GRAPHS["global statement"] = ("TOTAL", """
TOTAL = 0
def step(model, x, y):
    global TOTAL
    loss = F.mse_loss(model(x), y)
    TOTAL = TOTAL + loss  # <-
    return loss
model = nn.Linear(8, 1)
for x, y in batches():
    step(model, x, y).backward()
""")
GRAPHS["nonlocal"] = ("total", """
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
""")
GRAPHS["passed as an argument"] = ("history", """
def record(buf, x):
    buf.append(x)  # <-
def fit(model):
    history = []
    for x, y in batches():
        loss = F.mse_loss(model(x), y)
        loss.backward()
        record(history, loss)
fit(nn.Linear(8, 1))
""")
GRAPHS["passed by keyword twice"] = ("history", """
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
""")
GRAPHS["default argument"] = ("seen", """
def remember(loss, seen=[]):
    seen.append(loss)  # <-
    return len(seen)
model = nn.Linear(8, 1)
for x, y in batches():
    loss = F.mse_loss(model(x), y)
    remember(loss)
""")
GRAPHS["function attribute"] = ("train_step.losses", """
def train_step(model, x, y):
    loss = F.mse_loss(model(x), y)
    train_step.losses.append(loss)  # <-
    return loss
train_step.losses = []
model = nn.Linear(8, 1)
for x, y in batches():
    train_step(model, x, y)
""")
GRAPHS["alias of an attribute"] = ("Trainer.log_list", """
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
""")
GRAPHS["bound method alias"] = ("hist", """
def fit(model):
    hist = []
    push = hist.append
    for x, y in batches():
        push(F.mse_loss(model(x), y))  # <-
fit(nn.Linear(8, 1))
""")
GRAPHS["trainer attribute"] = ("Trainer.losses", """
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
""")
GRAPHS["meter"] = ("AverageMeter.sum", """
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
""")
GRAPHS["inherited method"] = ("Sub.values", """
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
""")
GRAPHS["nested objects"] = ("Meters.loss", """
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
""")
GRAPHS["dataclass with slots"] = ("Record.losses", """
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
""")
GRAPHS["class attribute"] = ("Tracker.all", """
class Tracker:
    all = []
    @classmethod
    def track(cls, value):
        cls.all.append(value)  # <-
model = nn.Linear(8, 1)
for x, y in batches():
    Tracker.track(model(x))
""")
GRAPHS["namespace object"] = ("state.total", """
from types import SimpleNamespace
def fit(model):
    state = SimpleNamespace(total=0, n=0)
    for x, y in batches():
        loss = F.mse_loss(model(x), y)
        state.n += 1
        state.total += loss  # <-
fit(nn.Linear(8, 1))
""")
GRAPHS["forward hook closure"] = ("feats", """
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
""")
GRAPHS["lambda hook"] = ("feats", """
def fit():
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 1))
    feats = []
    model[0].register_forward_hook(lambda m, i, o: feats.append(o))  # <-
    for x, y in batches():
        model(x).sum().backward()
fit()
""")
GRAPHS["hook object"] = ("Catcher.stored", """
class Catcher:
    def __init__(self):
        self.stored = {}
    def __call__(self, module, args, output):
        self.stored.setdefault(type(module).__name__, []).append(output)  # <-
model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 1))
model[0].register_forward_hook(Catcher())
for x, y in batches():
    model(x).sum().backward()
""")
GRAPHS["hook by name"] = ("acts", """
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
""")
GRAPHS["model attribute"] = ("Net.aux", """
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
""")
GRAPHS["submodule attribute"] = ("Block.cache", """
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
""")
GRAPHS["carried hidden state"] = ("hidden", """
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
""")
GRAPHS["carried in the module"] = ("Rnn.h", """
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
""")
GRAPHS["carried in a buffer"] = ("Memory.state", """
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
""")
GRAPHS["carried LSTM tuple"] = ("Lstm.hidden", """
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
""")
GRAPHS["carried through two names"] = ("state", """
def fit(cell, head):
    state = torch.zeros(4, 8)
    for x, y in batches():
        new_state = cell(x, state)
        loss = F.mse_loss(head(new_state), y)
        state = new_state  # <-
fit(nn.GRUCell(8, 8), nn.Linear(8, 1))
""")
GRAPHS["lit module"] = ("Lit.outs", """
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
""")
GRAPHS["running sum in a lit module"] = ("Lit.run", """
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
""")
GRAPHS["generator that collects"] = ("kept", """
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
""")
GRAPHS["suspended generator"] = ("kept", """
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
""")
GRAPHS["partial"] = ("store", """
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
""")
GRAPHS["queue"] = ("q", """
import queue
def fit(model):
    q = queue.Queue()
    for x, y in batches():
        loss = F.mse_loss(model(x), y)
        q.put(loss)  # <-
fit(nn.Linear(8, 1))
""")
GRAPHS["lru cache"] = ("embed", """
from functools import lru_cache
model = nn.Linear(8, 1)
data = [torch.randn(1, 8) for _ in range(20)]
@lru_cache(maxsize=None)  # <-
def embed(i):
    return model(data[i])
for i in range(14):
    embed(i)
""")
GRAPHS["heap"] = ("best", """
import heapq
def fit(model):
    best = []
    for i, (x, y) in enumerate(batches()):
        loss = F.mse_loss(model(x), y)
        heapq.heappush(best, (i, loss))  # <-
fit(nn.Linear(8, 1))
""")
GRAPHS["list comprehension"] = (None, """
def evaluate(model):
    losses = [F.mse_loss(model(x), y) for x, y in batches()]  # <-
    return torch.stack(losses)
evaluate(nn.Linear(8, 1))
""")
GRAPHS["sum of a generator"] = (None, """
def evaluate(model):
    return 1
model = nn.Linear(8, 1)
total = sum(F.mse_loss(model(x), y) for x, y in batches())  # <-
""")
GRAPHS["comprehension appends"] = ("bag", """
def fit(model):
    bag = []
    [bag.append(model(x)) for x, y in batches()]  # <-
fit(nn.Linear(8, 1))
""")
GRAPHS["async"] = ("seen", """
import asyncio
async def work(model):
    seen = []
    for x, y in batches():
        await asyncio.sleep(0)
        seen.append(model(x))  # <-
asyncio.run(work(nn.Linear(8, 1)))
""")
GRAPHS["thread"] = ("seen", """
import threading
def work(model):
    seen = []
    for x, y in batches():
        seen.append(model(x))  # <-
t = threading.Thread(target=work, args=(nn.Linear(8, 1),))
t.start(); t.join()
""")
GRAPHS["property"] = ("Store._items", """
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
""")
GRAPHS["list subclass"] = ("history", """
class History(list):
    def log(self, value):
        self.append(value)  # <-
def fit(model):
    history = History()
    for x, y in batches():
        history.log(model(x))
fit(nn.Linear(8, 1))
""")
GRAPHS["loop over a zip of lists"] = ("per_head", """
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
""")
GRAPHS["conditional log"] = ("Trainer.metrics", """
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
""")
GRAPHS["two sums"] = ("d_total", """
def fit(G, D):
    d_total, g_total = 0, 0
    for x, y in batches():
        d_loss = D(G(x).detach()).mean()
        g_loss = D(G(x)).mean()
        d_total += d_loss  # <-
        g_total += g_loss.item()
fit(nn.Linear(8, 8), nn.Linear(8, 1))
""")
GRAPHS["dict update"] = ("outs", """
def fit(model):
    outs = {}
    for i, (x, y) in enumerate(batches()):
        outs.update({i: model(x)})  # <-
fit(nn.Linear(8, 1))
""")
GRAPHS["setattr"] = ("Box.total", """
class Box: pass
def fit(model):
    box = Box()
    box.total = 0
    for x, y in batches():
        setattr(box, "total", box.total + model(x).mean())  # <-
fit(nn.Linear(8, 1))
""")
GRAPHS["chained targets"] = ("total", """
def fit(model):
    total = 0
    for x, y in batches():
        loss = total = total + F.mse_loss(model(x), y)  # <-
fit(nn.Linear(8, 1))
""")
GRAPHS["loss plus sum, logged mean"] = ("epoch_loss", """
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
""")
GRAPHS["tensor kept on an attribute of a tensor"] = ("past", """
def fit(model):
    past = []
    for x, y in batches():
        out = model(x)
        past.append((x, y, out))  # <-
fit(nn.Linear(8, 1))
""")


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
