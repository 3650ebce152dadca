"""What a Lightning step returns, kept while the next batch runs; where each stage calls its models."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from memguard.evidence.host.input_sizes import CalledProbe
from memguard.integrations.script import run_script
from memguard.records.facts import ModelCalled
from memguard.records.stats import Stage
from tests.evidence.loop import Loop, line_of

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


def test_each_stage_tells_its_first_call_once() -> None:
    """In training that of the model that is trained; a teacher in eval mode, or values without a graph, are not it."""
    model, teacher = nn.Linear(2, 2), nn.Linear(2, 2).eval()
    with Loop(model, teacher, kinds=[CalledProbe]) as loop:
        for _ in range(2):
            loop.probes.stage_start(Stage.TRAIN)
            for _ in loop.batches(3):
                teacher(torch.ones(1, 2))
                with torch.no_grad():
                    model(torch.ones(1, 2))
                model(torch.ones(1, 2)).sum().backward()  # trained
            loop.probes.stage_start(Stage.VALIDATION)
            for _ in loop.batches(3, stage=Stage.VALIDATION):
                teacher(torch.ones(1, 2))  # evaluated
    assert [(fact.stage, fact.place.line) for fact in loop.of(ModelCalled)] == [
        (Stage.TRAIN, line_of("trained")),
        (Stage.VALIDATION, line_of("evaluated")),
    ]
