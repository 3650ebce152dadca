"""Who holds outputs whose graphs are gone, and holders that hang on frameworks."""

from pathlib import Path

import pytest

from memguard.records.stats import Stage
from tests.evidence.scripts import marked_lines, run

STORAGES: dict[str, tuple[str, str]] = {}
"""Name of the case -> (holder, script). The line that is to be named carries the mark."""

STORAGES["detached logits in a list"] = (
    "preds",
    """
def validate(model):
    model.eval()
    preds, targets, losses = [], [], []
    with torch.no_grad():
        for x, y in batches():
            out = model(x)
            losses.append(F.mse_loss(out, y).item())
            preds.append(out)  # <-
            targets.append(y)
validate(nn.Linear(8, 1))
""",
)
STORAGES["detach call"] = (
    "outs",
    """
def fit(model):
    outs = []
    for x, y in batches():
        out = model(x)
        F.mse_loss(out, y).backward()
        outs.append(out.detach())  # <-
fit(nn.Linear(8, 1))
""",
)
STORAGES["column of the output"] = (
    "firsts",
    """
def fit(model):
    firsts, labels = [], []
    for x, y in batches():
        logits = model(x).detach()
        labels.append(y)
        firsts.append(logits[:, 0])  # <-
fit(nn.Linear(8, 4))
""",
)
STORAGES["validation outputs of a lit module"] = (
    "Lit.validation_step_outputs",
    """
class Lit(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(8, 4)
        self.validation_step_outputs = []
    def validation_step(self, batch, i):
        x, y = batch
        logits = self.net(x)
        self.validation_step_outputs.append({"logits": logits, "y": y})  # <-
    def on_validation_epoch_end(self):
        self.validation_step_outputs.clear()
lit = Lit()
with torch.no_grad():
    for i, b in enumerate(batches()):
        lit.validation_step(b, i)
""",
)
STORAGES["dict of lists of data"] = (
    "store",
    """
store = {"x": [], "emb": []}
def embed(model, x):
    e = model(x)
    store["x"].append(x)
    store["emb"].append(e.data)  # <-
model = nn.Linear(8, 4)
for x, y in batches():
    embed(model, x)
""",
)
STORAGES["feature cache by index"] = (
    "FeatureDataset.cache",
    """
class FeatureDataset:
    def __init__(self, n):
        self.encoder = nn.Linear(8, 4)
        self.cache = {}
        self.n = n
    def __getitem__(self, i):
        if i not in self.cache:
            with torch.no_grad():
                self.cache[i] = self.encoder(torch.randn(2, 8))  # <-
        return self.cache[i]
ds = FeatureDataset(14)
for i in range(14):
    ds[i]
""",
)
STORAGES["hook that detaches"] = (
    "ActivationLogger.activations",
    """
class ActivationLogger:
    def __init__(self, model):
        self.activations = []
        for m in model.modules():
            if isinstance(m, nn.Linear):
                m.register_forward_hook(self.hook)
    def hook(self, m, i, o):
        self.activations.append(o.detach())  # <-
model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 4))
logger = ActivationLogger(model)
for x, y in batches():
    model(x)
""",
)
STORAGES["generator's list"] = (
    "window",
    """
def stream(model):
    window = []
    for x, y in batches():
        with torch.no_grad():
            out = model(x)
        window.append(out)  # <-
        yield torch.stack(window).mean()
for value in stream(nn.Linear(8, 1)):
    pass
""",
)


@pytest.mark.parametrize("case", STORAGES)
def test_names_who_keeps_outputs(case: str, tmp_path: Path) -> None:
    """The variable and the statement that keep outputs of earlier batches are named."""
    holder, script = STORAGES[case]
    holders = run(script, tmp_path, graph=False)
    told = [(str(h), h.place.source) for h in holders]
    assert holders[0].place.line in marked_lines(tmp_path / "script.py"), told
    assert holders[0].place.holder == holder, told


LIBRARY = """
import torch
from torch import nn
class Catalogue(nn.Module):
    def __init__(self):
        super().__init__()
        self.preds = []
    def update(self, preds, target):
        self.preds.append(preds)
    def compute(self):
        return torch.cat(self.preds)
    def forward(self, preds, target):
        self.update(preds, target)
"""


@pytest.mark.parametrize("call", ["self.auc.update(out, y)", "self.auc(out, y)"])
def test_installed_metric_is_named_at_the_users_call(call: str, tmp_path: Path) -> None:
    """A metric of a library is named as the user's attribute, at the line that feeds it."""
    script = f"""
    from installed_metrics import Catalogue
    class Lit(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Linear(8, 1)
            self.auc = Catalogue()
        def validation_step(self, x, y):
            out = self.net(x)
            {call}  # <-
        def on_validation_epoch_end(self):
            self.log("auc", self.auc.compute())
            self.auc.reset()
    lit = Lit()
    with torch.no_grad():
        for x, y in batches():
            lit.validation_step(x, y)
    """
    holders = run(script, tmp_path, graph=False, others={"installed_metrics": LIBRARY}, stage=Stage.VALIDATION)
    assert holders[0].place.line in marked_lines(tmp_path / "script.py"), str(holders)
    assert holders[0].place.holder == "Lit.auc"


def test_a_variable_that_is_called_comes_before_what_its_library_calls_itself(tmp_path: Path) -> None:
    """The metric wraps its own methods, and is ``self`` in there, in a frame's statement that fits better."""
    library = LIBRARY.replace(
        "        self.preds = []",
        "        self.preds = []\n"
        "        def wrapped():\n"
        "            for _ in range(1):\n"
        "                self.preds.append(torch.cat(self.preds))\n"
        "        self.wrapped = wrapped",
    )
    script = """
    from installed_metrics import Catalogue
    net, auc = nn.Linear(8, 1), Catalogue()
    total = 0.0
    for x, y in batches():
        with torch.no_grad():
            total += float(auc(net(x), y) or 0)  # <-
    """
    holders = run(script, tmp_path, graph=False, others={"installed_metrics": library})
    assert holders[0].place.line in marked_lines(tmp_path / "script.py"), str(holders)
    assert holders[0].place.holder == "auc"


def test_extra_root_is_named(tmp_path: Path) -> None:
    """A callback that only the framework holds is found through the extra roots."""
    script = """
    class Keeper:
        def __init__(self):
            self.kept = []
        def on_train_batch_end(self, trainer, outputs):
            self.kept.append(outputs)  # <-
    def make():
        keeper = Keeper()
        return keeper.on_train_batch_end, keeper
    from installed_host import run, HOST
    run(nn.Linear(8, 1), [Keeper()], batches())
    """
    host = """
    HOST = []
    def run(model, callbacks, batches):
        HOST[:] = callbacks
        callbacks = None
        for x, y in batches:
            out = model(x)
            for i in range(len(HOST)):
                HOST[i].on_train_batch_end(None, out)
    """
    holders = run(script, tmp_path, others={"installed_host": host}, extra="[('callback', HOST[0])]")
    assert holders[0].place.line in marked_lines(tmp_path / "script.py"), str(holders)
    assert holders[0].place.holder == "Keeper.kept"
