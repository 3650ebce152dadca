"""An exponential average of the loss as a LightningModule's attribute."""

import pytorch_lightning as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Model(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(4, 16, batch_first=True)
        self.head = nn.Linear(16, 1)
        self.ema_loss = 0.0

    def training_step(self, batch, batch_idx):
        x, y = batch
        _, h = self.gru(x)
        loss = nn.functional.mse_loss(self.head(h[-1]), y)
        self.ema_loss = 0.9 * self.ema_loss + 0.1 * loss  # !MG101 Model.ema_loss
        self.log("ema", self.ema_loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


if __name__ == "__main__":
    data = TensorDataset(torch.randn(200, 6, 4), torch.randn(200, 1))
    trainer = pl.Trainer(
        max_epochs=1,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Model(), DataLoader(data, batch_size=8))
