"""validation_step turns gradients on again, a left-over of an experiment."""

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Lit(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 2))

    def training_step(self, batch, _):
        x, y = batch
        return nn.functional.cross_entropy(self.net(x), y)

    def validation_step(self, batch, _):
        x, y = batch
        with torch.enable_grad():
            logits = self.net(x)  # !MG201 Sequential
        self.log("val_loss", nn.functional.cross_entropy(logits, y))

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters())


def loader(n):
    return DataLoader(TensorDataset(torch.randn(n, 8), torch.randint(2, (n,))), batch_size=8)


trainer = L.Trainer(
    max_epochs=2,
    accelerator="cpu",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(Lit(), loader(80), loader(64))
