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


@pytest.mark.parametrize("case", REPORTS)
def test_names_the_cause_of_a_report(case: str, tmp_path: Path) -> None:
    """The variable and the statement that keep graphs of earlier batches are named."""
    holder, script = REPORTS[case]
    holders = run(script, tmp_path)
    assert holders, "nobody was named"
    told = [(str(h), h.place.source) for h in holders]
    assert holders[0].place.line in marked_lines(tmp_path / "script.py"), told
    assert holders[0].place.holder == holder, told
