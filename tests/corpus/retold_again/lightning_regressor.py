"""Predictions of an epoch for a scatter plot, detached and on the host, cleared each epoch."""

import pytorch_lightning as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Regressor(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(7, 40), nn.ReLU(), nn.Linear(40, 1))
        self.pred = []

    def training_step(self, batch, _):
        x, y = batch
        y_hat = self.net(x)
        self.pred.append(y_hat.detach().cpu())
        return nn.functional.mse_loss(y_hat, y)

    def on_train_epoch_end(self):
        self.log("spread", torch.cat(self.pred).std())
        self.pred.clear()

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters())


x = torch.randn(320, 7)
pl.Trainer(
    max_epochs=2,
    accelerator="cpu",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
).fit(Regressor(), DataLoader(TensorDataset(x, x[:, :1] ** 2), batch_size=16))
