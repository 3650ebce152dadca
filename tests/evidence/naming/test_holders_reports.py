"""Who holds old graphs in programs like those of real reports: other people's trainers, agents and loops, retold."""

from pathlib import Path

import pytest

from tests.evidence.scripts import marked_lines, run

REPORTS: dict[str, tuple[str, str]] = {}
"""Name of the case -> (holder, script). The lines that may be named carry the mark."""

REPORTS["trainer with state and callbacks"] = (
    "TrainerState.log_history",
    """
from dataclasses import dataclass, field
@dataclass
class TrainerState:
    global_step: int = 0
    log_history: list = field(default_factory=list)
class Callback:
    def on_step_end(self, state, loss): ...
class Recorder(Callback):
    def on_step_end(self, state, loss):
        state.log_history.append({"step": state.global_step, "loss": loss})  # <-
class Trainer:
    def __init__(self, model, callbacks):
        self.model, self.callbacks = model, callbacks
        self.state = TrainerState()
    def call_event(self, name, **kw):
        for cb in self.callbacks:
            getattr(cb, name)(self.state, **kw)
    def training_step(self, batch):
        x, y = batch
        loss = F.mse_loss(self.model(x), y)
        loss.backward()
        return loss
    def train(self):
        tr_loss = torch.tensor(0.0)
        for batch in batches():
            step_loss = self.training_step(batch)
            tr_loss += step_loss.detach()
            self.state.global_step += 1
            self.call_event("on_step_end", loss=step_loss)
Trainer(nn.Linear(8, 1), [Recorder()]).train()
""",
)
REPORTS["tr_loss of a trainer"] = (
    "tr_loss",
    """
class Trainer:
    def __init__(self, model):
        self.model = model
    def compute_loss(self, x, y):
        return F.mse_loss(self.model(x), y)
    def train(self):
        tr_loss = torch.tensor(0.0)
        logging_loss = 0.0
        for step, (x, y) in enumerate(batches()):
            loss = self.compute_loss(x, y)
            loss.backward()
            tr_loss = tr_loss + loss  # <-
            if step % 5 == 4:
                logging_loss = tr_loss.item()
        return tr_loss
Trainer(nn.Linear(8, 1)).train()
""",
)
REPORTS["actor critic"] = (
    "Agent.values",
    """
class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.pi, self.v = nn.Linear(8, 2), nn.Linear(8, 1)
        self.reset_memory()
    def reset_memory(self):
        self.values, self.rewards = [], []
    def forward(self, x):
        return F.softmax(self.pi(x), -1), self.v(x)
def play(agent):
    for t, (x, _) in enumerate(batches()):
        probs, value = agent(x)
        agent.values.append(value)  # <-
        agent.rewards.append(float(t))
play(Agent())
""",
)
REPORTS["GAN losses"] = (
    "G_losses",
    """
netG, netD = nn.Linear(8, 8), nn.Linear(8, 1)
optG = torch.optim.Adam(netG.parameters())
optD = torch.optim.Adam(netD.parameters())
G_losses, D_losses = [], []
for i, (x, y) in enumerate(batches()):
    optD.zero_grad()
    errD = netD(netG(x).detach()).mean() - netD(x).mean()
    errD.backward()
    optD.step()
    optG.zero_grad()
    errG = -netD(netG(x)).mean()
    errG.backward()
    optG.step()
    G_losses.append(errG)  # <-
    D_losses.append(errD.item())
""",
)
REPORTS["feature extractor by hooks"] = (
    "FeatureExtractor._features",
    """
class FeatureExtractor(nn.Module):
    def __init__(self, model, layers):
        super().__init__()
        self.model = model
        self._features = {layer: [] for layer in layers}
        for layer_id in layers:
            layer = dict([*self.model.named_modules()])[layer_id]
            layer.register_forward_hook(self.save_outputs_hook(layer_id))
    def save_outputs_hook(self, layer_id):
        def fn(_, __, output):
            self._features[layer_id].append(output)  # <-
        return fn
    def forward(self, x):
        return self.model(x)
net = FeatureExtractor(nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1)), ["0", "2"])
for x, y in batches():
    F.mse_loss(net(x), y).backward()
""",
)
REPORTS["attention maps kept by the layer"] = (
    "Attention.attention_maps",
    """
class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(8, 24)
        self.attention_maps = []
    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        attn = (q @ k.T).softmax(-1)
        self.attention_maps.append(attn)  # <-
        return attn @ v
class ViT(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Attention(), Attention()])
        self.head = nn.Linear(8, 1)
    def forward(self, x):
        for block in self.blocks:
            x = x + block(x)
        return self.head(x)
def train():
    vit = ViT()
    for x, y in batches():
        F.mse_loss(vit(x), y).backward()
train()
""",
)
REPORTS["world model state"] = (
    "Rssm.prev_state",
    """
class Rssm(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(8, 8)
        self.prior = nn.Linear(8, 4)
        self.prev_state = {"h": torch.zeros(4, 8), "z": None}
    def forward(self, obs):
        h = self.cell(obs, self.prev_state["h"])
        z = self.prior(h)
        self.prev_state = {"h": h, "z": z}  # <-
        return z
model = Rssm()
for x, y in batches():
    loss = model(x).pow(2).mean()
""",
)
REPORTS["truncated BPTT forgotten"] = (
    "hiddens",
    """
class LM(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(8, 8, batch_first=True)
        self.out = nn.Linear(8, 1)
    def init_hidden(self):
        return torch.zeros(1, 4, 8), torch.zeros(1, 4, 8)
    def forward(self, x, hiddens):
        out, hiddens = self.rnn(x.unsqueeze(1), hiddens)
        return self.out(out), hiddens
def evaluate(model):
    hiddens = model.init_hidden()
    total_loss = 0.0
    for x, y in batches():
        output, hiddens = model(x, hiddens)  # <-
        total_loss += len(x) * F.mse_loss(output.squeeze(), y.squeeze()).item()
    return total_loss
evaluate(LM())
""",
)
REPORTS["graph node memory"] = (
    "TGNMemory.memory",
    """
class TGNMemory(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRUCell(8, 8)
        self.register_buffer("memory", torch.zeros(4, 8))
    def update(self, msg):
        new = self.gru(msg, self.memory)
        self.memory = new  # <-
        return new
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.mem = TGNMemory()
        self.out = nn.Linear(8, 1)
    def forward(self, x):
        return self.out(self.mem.update(x))
model = Model()
for x, y in batches():
    F.mse_loss(model(x), y)
""",
)
REPORTS["EMA of a loss scale"] = (
    "Balancer.avg",
    """
class Balancer:
    def __init__(self, n, decay=0.99):
        self.avg = [0.0] * n
        self.decay = decay
    def __call__(self, losses):
        for i, l in enumerate(losses):
            self.avg[i] = self.decay * self.avg[i] + (1 - self.decay) * l  # <-
        return sum(losses)
def fit(model):
    balancer = Balancer(2)
    for x, y in batches():
        out = model(x)
        balancer([out.mean(), (out - y).pow(2).mean()]).backward()
fit(nn.Linear(8, 1))
""",
)
REPORTS["early stopping keeps the best"] = (
    "EarlyStopping.history",
    """
class EarlyStopping:
    def __init__(self, patience=5):
        self.patience, self.best, self.bad = patience, None, 0
        self.history = []
    def step(self, metric):
        self.history.append(metric)  # <-
        if self.best is None or float(metric.detach()) < self.best:
            self.best, self.bad = float(metric.detach()), 0
        else:
            self.bad += 1
        return self.bad >= self.patience * 100
stopper = EarlyStopping()
model = nn.Linear(8, 1)
for x, y in batches():
    loss = F.mse_loss(model(x), y)
    loss.backward()
    if stopper.step(loss):
        break
""",
)
REPORTS["distillation pairs"] = (
    "pairs",
    """
def distill(student, teacher):
    pairs = []
    for x, y in batches():
        with torch.no_grad():
            t = teacher(x)
        s = student(x)
        F.mse_loss(s, t).backward()
        pairs.append((t, s))  # <-
    return pairs
distill(nn.Linear(8, 1), nn.Linear(8, 1))
""",
)
REPORTS["gradient penalty log"] = (
    "gp_log",
    """
def penalty(D, x):
    x = x.clone().requires_grad_(True)
    g, = torch.autograd.grad(D(x).sum(), x, create_graph=True)
    return ((g.norm(2, 1) - 1) ** 2).mean()
def fit(D):
    gp_log = {"gp": []}
    for x, y in batches():
        gp = penalty(D, x)
        (D(x).mean() + gp).backward()
        gp_log["gp"] += [gp]  # <-
fit(nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1)))
""",
)
REPORTS["progress bar postfix"] = (
    "Bar.postfix_history",
    """
class Bar:
    def __init__(self, it):
        self.it = it
        self.postfix_history = []
    def __iter__(self):
        yield from self.it
    def set_postfix(self, **kw):
        self.postfix_history.append(kw)  # <-
model = nn.Linear(8, 1)
bar = Bar(batches())
for x, y in bar:
    loss = F.mse_loss(model(x), y)
    loss.backward()
    bar.set_postfix(loss=loss, lr=0.1)
""",
)
REPORTS["global registry of metrics"] = (
    "_METRICS",
    """
_METRICS = {}
def log(name, value, step):
    _METRICS.setdefault(name, {})[step] = value  # <-
def main():
    model = nn.Linear(8, 1)
    for step, (x, y) in enumerate(batches()):
        loss = F.mse_loss(model(x), y)
        loss.backward()
        log("train/loss", loss, step)
        log("lr", 0.1, step)
main()
""",
)
REPORTS["context manager that collects"] = (
    "Collector.items",
    """
class Collector:
    def __enter__(self):
        self.items = []
        return self
    def __exit__(self, *exc):
        self.items = None
    def collect(self, item):
        self.items.append(item)  # <-
def fit(model):
    with Collector() as c:
        for x, y in batches():
            c.collect(model(x))
fit(nn.Linear(8, 1))
""",
)
REPORTS["singleton"] = (
    "Logger.records",
    """
class Logger:
    _instance = None
    def __new__(cls):
        if cls._instance is None:
            cls._instance = super().__new__(cls)
            cls._instance.records = []
        return cls._instance
    def add(self, **kw):
        self.records.append(kw)  # <-
def step(model, x, y):
    loss = F.mse_loss(model(x), y)
    Logger().add(loss=loss)
    return loss
model = nn.Linear(8, 1)
for x, y in batches():
    step(model, x, y).backward()
""",
)
REPORTS["two epochs, sum never reset"] = (
    "running_loss",
    """
model = nn.Linear(8, 1)
running_loss = 0.0
for epoch in range(2):
    for i, data in enumerate(batches(7), 0):
        inputs, labels = data
        outputs = model(inputs)
        loss = F.mse_loss(outputs, labels)
        loss.backward()
        running_loss += loss  # <-
        if i % 2000 == 1999:
            print(running_loss / 2000)
            running_loss = 0.0
""",
)
REPORTS["stage dispatch"] = (
    "Runner.loss_meter",
    """
class Runner:
    def __init__(self):
        self.model = nn.Linear(8, 1)
        self.loss_meter = {"train": 0.0, "valid": 0.0}
        self.count = {"train": 0, "valid": 0}
    def run_batch(self, batch, phase):
        x, y = batch
        loss = F.mse_loss(self.model(x), y)
        if phase == "train":
            loss.backward()
        self.loss_meter[phase] += loss  # <-
        self.count[phase] += 1
    def run(self):
        for b in batches():
            self.run_batch(b, "train")
Runner().run()
""",
)
REPORTS["mixture of losses in a dict"] = (
    "MultiTask.loss_dict",
    """
class MultiTask:
    def __init__(self):
        self.shared = nn.Linear(8, 8)
        self.heads = {"a": nn.Linear(8, 1), "b": nn.Linear(8, 1)}
        self.loss_dict = {}
    def step(self, x, y):
        h = self.shared(x)
        losses = {k: F.mse_loss(head(h), y) for k, head in self.heads.items()}
        for k, v in losses.items():
            self.loss_dict[k] = self.loss_dict.get(k, 0.0) + v  # <-
        return sum(losses.values())
task = MultiTask()
for x, y in batches():
    task.step(x, y).backward()
""",
)
REPORTS["tuple of accumulators"] = (
    "acc",
    """
def fit(model):
    acc = (0.0, 0)
    for x, y in batches():
        loss = F.mse_loss(model(x), y)
        acc = (acc[0] + loss, acc[1] + 1)  # <-
    return acc
fit(nn.Linear(8, 1))
""",
)
REPORTS["two accumulators in one line"] = (
    "loss_sum",
    """
def fit(model):
    loss_sum, n = 0.0, 0
    for x, y in batches():
        loss = F.mse_loss(model(x), y)
        loss_sum, n = loss_sum + loss, n + 1  # <-
fit(nn.Linear(8, 1))
""",
)
REPORTS["helper function returns the sum"] = (
    "total",
    """
def accumulate(total, value):
    if total is None:
        return value
    return total + value
def fit(model):
    total = None
    for x, y in batches():
        loss = F.mse_loss(model(x), y)
        total = accumulate(total, loss)  # <-
fit(nn.Linear(8, 1))
""",
)
REPORTS["list in the step's caller"] = (
    "epoch_losses",
    """
def step(model, x, y):
    loss = F.mse_loss(model(x), y)
    loss.backward()
    return loss
def epoch(model, epoch_losses):
    for x, y in batches(7):
        epoch_losses.append(step(model, x, y))  # <-
def main():
    model = nn.Linear(8, 1)
    epoch_losses = []
    for e in range(2):
        epoch(model, epoch_losses)
main()
""",
)
REPORTS["results dict returned by a step"] = (
    "logs",
    """
def step(model, x, y):
    out = model(x)
    loss = F.mse_loss(out, y)
    return {"loss": loss, "out": out, "n": len(x)}
def main(model):
    logs = []
    for x, y in batches():
        res = step(model, x, y)
        res["loss"].backward()
        logs.append(res)  # <-
main(nn.Linear(8, 1))
""",
)
REPORTS["queue of a producer thread"] = (
    "results",
    """
import queue
import threading
results = []
q = queue.Queue()
def consume():
    while True:
        item = q.get()
        if item is None:
            return
        results.append(item)  # <-
        q.task_done()
t = threading.Thread(target=consume, daemon=True)
t.start()
model = nn.Linear(8, 1)
for x, y in batches():
    q.put(F.mse_loss(model(x), y))
    q.join()
q.put(None)
t.join()
""",
)
REPORTS["memo by hand"] = (
    "_memo",
    """
_memo = {}
def encode(model, key, x):
    if key in _memo:
        return _memo[key]
    out = model(x)
    _memo[key] = out  # <-
    return out
model = nn.Linear(8, 1)
for i, (x, y) in enumerate(batches()):
    loss = (encode(model, i, x) - y).pow(2).mean()
    loss.backward()
""",
)
REPORTS["module level class instance"] = (
    "History.losses",
    """
class History:
    losses: list
    def __init__(self):
        self.losses = []
history = History()
def train_step(model, x, y):
    loss = F.mse_loss(model(x), y)
    loss.backward()
    history.losses.append(loss)  # <-
model = nn.Linear(8, 1)
for x, y in batches():
    train_step(model, x, y)
""",
)
REPORTS["optional store"] = (
    "Solver.trace",
    """
class Solver:
    def __init__(self, model, trace=None):
        self.model = model
        self.trace = trace if trace is not None else []
    def residual(self, x, y):
        r = self.model(x) - y
        if self.trace is not None:
            self.trace.append(r.pow(2).sum())  # <-
        return r
def solve():
    solver = Solver(nn.Linear(8, 1))
    for x, y in batches():
        solver.residual(x, y).pow(2).mean().backward()
solve()
""",
)
REPORTS["stack of frames"] = (
    "VideoModel.frames",
    """
class VideoModel(nn.Module):
    def __init__(self, keep=1000):
        super().__init__()
        self.enc = nn.Linear(8, 8)
        self.keep = keep
        self.frames = None
    def forward(self, x):
        f = self.enc(x).unsqueeze(0)
        self.frames = f if self.frames is None else torch.cat([self.frames, f])[-self.keep:]  # <-
        return self.frames.mean(0)
model = VideoModel()
for x, y in batches():
    model(x)
""",
)
REPORTS["weighted sum in a criterion"] = (
    "Criterion.ema",
    """
class Criterion:
    def __init__(self):
        self.ema = None
    def __call__(self, out, y):
        loss = F.mse_loss(out, y)
        self._track(loss)
        return loss
    def _track(self, loss):
        if self.ema is None:
            self.ema = loss
            return
        self.ema = torch.lerp(self.ema, loss, 0.1)  # <-
crit = Criterion()
model = nn.Linear(8, 1)
for x, y in batches():
    crit(model(x), y).backward()
""",
)
REPORTS["nested dict of epochs"] = (
    "history",
    """
def fit(model):
    history = {}
    for epoch in range(2):
        history[epoch] = {"loss": []}
        for x, y in batches(7):
            out = model(x)
            loss = F.mse_loss(out, y)
            history[epoch]["loss"].append(loss)  # <-
fit(nn.Linear(8, 1))
""",
)
REPORTS["ordered by name"] = (
    "Meter.data",
    """
from collections import OrderedDict
class Meter:
    def __init__(self, *names):
        self.data = OrderedDict((n, []) for n in names)
    def add(self, d):
        for k in self.data:
            if k in d:
                self.data[k].append(d[k])  # <-
meter = Meter("loss", "acc")
model = nn.Linear(8, 1)
for x, y in batches():
    out = model(x)
    loss = F.mse_loss(out, y)
    loss.backward()
    meter.add({"loss": loss, "acc": (out > 0).float().mean().item()})
""",
)
REPORTS["swap of states"] = (
    "state",
    """
def rollout(cell):
    prev, state = None, torch.zeros(4, 8)
    for x, y in batches():
        prev, state = state, cell(x, state)  # <-
rollout(nn.GRUCell(8, 8))
""",
)
REPORTS["bias kept by an optimizer wrapper"] = (
    "Lookahead.trace",
    """
class Lookahead:
    def __init__(self, opt):
        self.opt = opt
        self.trace = []
    def step(self, loss):
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        self.trace.append(loss)  # <-
model = nn.Linear(8, 1)
opt = Lookahead(torch.optim.SGD(model.parameters(), 0.1))
for x, y in batches():
    opt.step(F.mse_loss(model(x), y))
""",
)


@pytest.mark.parametrize("case", REPORTS)
def test_names_the_cause_of_a_report(case: str, tmp_path: Path) -> None:
    """The variable and the statement that keep graphs of earlier batches are named."""
    holder, script = REPORTS[case]
    holders = run(script, tmp_path)
    assert holders, "nobody was named"
    told = [(str(h), h.place.source) for h in holders]
    assert holders[0].place.line in marked_lines(tmp_path / "script.py"), told
    assert holders[0].place.holder == holder, told
