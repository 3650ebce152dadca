"""Who holds old graphs inside a Lightning run, where no method of the user's is on the stack any more."""

import textwrap
from pathlib import Path

import pytest

from tests.evidence.scripts import marked_lines, run

pytest.importorskip("lightning")
pytestmark = pytest.mark.filterwarnings("ignore")

LOOP = """
import lightning as L
from torch.utils.data import DataLoader, TensorDataset
class Base(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(8, 1)
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.01)
def fit(model, callbacks=()):
    data = TensorDataset(torch.randn(56, 8), torch.randn(56, 1))
    trainer = L.Trainer(
        max_epochs=1, logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        accelerator="cpu", callbacks=list(callbacks),
    )
    trainer.fit(model, DataLoader(data, batch_size=4))
"""

CASES = {
    "list of the module": (
        "Lit.outs",
        """
class Lit(Base):
    def __init__(self):
        super().__init__()
        self.outs = []
    def training_step(self, batch, i):
        x, y = batch
        loss = F.mse_loss(self.net(x), y)
        self.outs.append(loss)  # <-
        return loss
fit(Lit())
""",
    ),
    "sum of the module": (
        "Lit.running",
        """
class Lit(Base):
    running = 0.0
    def training_step(self, batch, i):
        x, y = batch
        loss = F.mse_loss(self.net(x), y)
        self.running = self.running + loss  # <-
        self.log("loss", loss)
        return loss
fit(Lit())
""",
    ),
    "callback": (
        "Keep.kept",
        """
class Lit(Base):
    def training_step(self, batch, i):
        x, y = batch
        self.out = self.net(x)
        return F.mse_loss(self.out, y)
class Keep(L.Callback):
    def __init__(self):
        self.kept = []
    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        self.kept.append(pl_module.out)  # <-
fit(Lit(), [Keep()])
""",
    ),
    "global list": (
        "LOG",
        """
LOG = []
class Lit(Base):
    def training_step(self, batch, i):
        x, y = batch
        loss = F.mse_loss(self.net(x), y)
        LOG.append({"loss": loss, "i": i})  # <-
        return loss
fit(Lit())
""",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_names_the_cause_in_lightning(case: str, tmp_path: Path) -> None:
    """The attribute and the statement are named from the models, the frames of the Trainer and the user's modules."""
    holder, script = CASES[case]
    holders = run(textwrap.dedent(LOOP) + textwrap.dedent(script), tmp_path, after_step=True)
    told = [(str(h), h.place.source) for h in holders]
    assert holders, "nobody was named"
    assert holders[0].place.line in marked_lines(tmp_path / "script.py"), told
    assert holders[0].place.holder == holder, told
