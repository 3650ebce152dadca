"""An exponential average of the loss as an attribute of the LightningModule."""

import pytorch_lightning as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Smoothed(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(12, 2)
        self.ema_loss = None

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = nn.functional.cross_entropy(self.layer(x), y)
        if self.ema_loss is None:
            self.ema_loss = loss
        else:
            self.ema_loss = 0.95 * self.ema_loss + 0.05 * loss  # !MG101 Smoothed.ema_loss
        self.log("ema", self.ema_loss, prog_bar=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


trainer = pl.Trainer(
    max_epochs=2,
    accelerator="cpu",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(Smoothed(), DataLoader(TensorDataset(torch.randn(128, 12), torch.randint(2, (128,))), batch_size=4))
