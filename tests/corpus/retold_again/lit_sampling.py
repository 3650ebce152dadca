# device: virtual:256MiB
"""An autoencoder in Lightning draws reconstructions after each training epoch, in eval mode but with gradients on."""

import pytorch_lightning as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class AE(pl.LightningModule):
    def __init__(self, images):
        super().__init__()
        self.images = images
        self.encoder = nn.Sequential(nn.Flatten(), nn.Linear(1024, 512), nn.ReLU(), nn.Linear(512, 64))
        self.decoder = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 1024))

    def forward(self, x):
        return self.decoder(self.encoder(x)).view_as(x)

    def training_step(self, batch, _):
        (x,) = batch
        return nn.functional.mse_loss(self(x), x)

    def on_train_epoch_end(self):
        self.eval()
        worst = 0.0
        for chunk in self.images.split(256):
            recon = self(chunk)  # !MG201 AE
            worst = max(worst, (recon - chunk).abs().max().item())
        self.train()
        print("worst pixel", worst)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), 1e-3)


images = torch.rand(2048, 1, 32, 32)
trainer = pl.Trainer(
    max_epochs=3,
    accelerator="cpu",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(AE(images), DataLoader(TensorDataset(images), batch_size=128))
