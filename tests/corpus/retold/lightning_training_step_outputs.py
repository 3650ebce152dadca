"""Migrated from Lightning 1.x: training_step_outputs of the module's own, cleared at the end of the epoch."""

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Classifier(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 3))
        self.training_step_outputs = []

    def training_step(self, batch, batch_idx):
        x, y = batch
        logits = self.model(x)
        loss = nn.functional.cross_entropy(logits, y)
        kept = {"loss": loss, "preds": logits.argmax(1), "target": y}
        self.training_step_outputs.append(kept)  # !MG101 Classifier.training_step_outputs
        self.log("train_loss", loss)
        return loss

    def on_train_epoch_end(self):
        avg = torch.stack([o["loss"] for o in self.training_step_outputs]).mean()
        self.log("epoch_loss", avg)
        self.training_step_outputs.clear()

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


data = TensorDataset(torch.randn(240, 16), torch.randint(3, (240,)))
trainer = L.Trainer(
    max_epochs=2,
    accelerator="cpu",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(Classifier(), DataLoader(data, batch_size=8))
