"""What a Lightning step returns, kept while the next batch runs: no model of the module gave it as its output."""

from __future__ import annotations

from pathlib import Path

import pytest

from memguard.integrations.script import run_script

pytest.importorskip("lightning")
pytestmark = pytest.mark.filterwarnings("ignore")

SCRIPT = """
import torch
import lightning.pytorch as pl
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

class Lit(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(16, 16)
        self.seen = None
    def training_step(self, batch, index):
        wide = self.net(batch[0]).repeat(1, 200)
        return {{"loss": wide.square().mean(), "wide": wide}}
    def on_train_batch_end(self, outputs, batch, index):
        self.seen = {kept}
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)

pl.Trainer(max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
           enable_model_summary=False).fit(Lit(), DataLoader(TensorDataset(torch.ones(3200, 16)), batch_size=200))
"""


@pytest.mark.parametrize(("kept", "holders"), [("outputs", ["Lit.seen"]), ("outputs['wide'].mean().item()", [])])
def test_outputs_of_a_step_that_the_next_batch_finds_there_are_told(
    kept: str, holders: list[str], tmp_path: Path
) -> None:
    """Where a number is kept of them there is nothing to tell."""
    script = tmp_path / "fit.py"
    script.write_text(SCRIPT.format(kept=kept))
    options = {"device": "virtual:64MiB", "logdir": str(tmp_path), "validation": "warn"}
    code, summaries = run_script(str(script), [], options, module=False)
    assert code == 0
    assert [f.holder for summary in summaries for f in summary.findings if f.code == "MG303"] == holders
