"""Who holds outputs where a library has the code that stores them, or holds the object that does."""

from pathlib import Path

import pytest

from memguard.records.stats import Stage
from tests.evidence.scripts import marked_lines, run

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
