"""Sampling in on_train_epoch_end, where gradients are on."""

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader


class Denoiser(L.LightningModule):
    def __init__(self, steps=8):
        super().__init__()
        self.steps = steps
        self.net = nn.Sequential(nn.Linear(17, 64), nn.SiLU(), nn.Linear(64, 16))

    def denoise(self, x, t):
        return self.net(torch.cat([x, torch.full((len(x), 1), t)], 1))

    def training_step(self, x, _):
        noise, t = torch.randn_like(x), float(torch.rand(()))
        loss = nn.functional.mse_loss(self.denoise(x * (1 - t) + noise * t, t), noise)
        self.log("loss", loss)
        return loss

    def on_train_epoch_end(self):
        self.eval()
        for _ in range(6):
            x = torch.randn(8, 16)
            for i in range(self.steps):
                eps = self.denoise(x, 1 - i / self.steps)  # !MG201 Sequential
                x = (x - eps / self.steps).detach()
        self.train()

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), 1e-3)


L.Trainer(
    max_epochs=2,
    accelerator="cpu",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
).fit(Denoiser(), DataLoader(torch.randn(96, 16), batch_size=8))
