"""Samples are made in on_train_epoch_end, where Lightning has gradients enabled, in eval mode."""

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class AE(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(30, 64), nn.ReLU(), nn.Linear(64, 4))
        self.dec = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 30))

    def training_step(self, batch, _):
        return (self.dec(self.enc(batch[0])) - batch[0]).pow(2).mean()

    def on_train_epoch_end(self):
        self.eval()
        spread = []
        for _ in range(6):
            images = self.dec(torch.randn(64, 4))  # !MG201 Sequential
            spread.append(images.std().item())
        self.train()
        self.log("spread", sum(spread) / 6)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), 1e-3)


L.Trainer(
    max_epochs=3,
    accelerator="cpu",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
).fit(AE(), DataLoader(TensorDataset(torch.rand(160, 30)), batch_size=16))
