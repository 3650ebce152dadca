"""A Lightning callback runs the module on the batch again and keeps its predictions."""

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class KeepPredictions(L.Callback):
    def __init__(self):
        self.predictions = []

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        self.predictions.append(pl_module(batch[0]))  # !MG101 KeepPredictions.predictions


class Regressor(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 1))

    def forward(self, x):
        return self.net(x).squeeze(1)

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = nn.functional.mse_loss(self(x), y)
        self.log("loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


loader = DataLoader(TensorDataset(torch.randn(256, 6), torch.randn(256)), batch_size=8)
L.Trainer(
    max_epochs=1,
    accelerator="cpu",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
    callbacks=[KeepPredictions()],
).fit(Regressor(), loader)
