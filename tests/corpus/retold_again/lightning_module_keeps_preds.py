"""Predictions of an epoch for a scatter plot, in LightningModule.training_step."""

import pytorch_lightning as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Regressor(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(7, 40), nn.ReLU(), nn.Linear(40, 1))
        self.scatter = {"pred": [], "true": []}

    def training_step(self, batch, _):
        x, y = batch
        y_hat = self.net(x)
        self.scatter["pred"].append(y_hat)  # !MG101 Regressor.scatter
        self.scatter["true"].append(y)
        return nn.functional.mse_loss(y_hat, y)

    def on_train_epoch_end(self):
        pred = torch.cat(self.scatter["pred"]).detach()
        self.log("r", torch.corrcoef(torch.stack([pred, torch.cat(self.scatter["true"])]).squeeze(-1))[0, 1])
        self.scatter = {"pred": [], "true": []}

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters())


x = torch.randn(400, 7)
trainer = pl.Trainer(
    max_epochs=2,
    accelerator="cpu",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(Regressor(), DataLoader(TensorDataset(x, x[:, :1] ** 2), batch_size=16))
