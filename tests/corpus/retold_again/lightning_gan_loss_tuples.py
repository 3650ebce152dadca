"""A GAN with manual optimisation in Lightning that extends a list of pairs."""

import lightning as L
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class TinyGAN(L.LightningModule):
    def __init__(self, latent=8):
        super().__init__()
        self.automatic_optimization = False
        self.latent = latent
        self.generator = nn.Sequential(nn.Linear(latent, 32), nn.ReLU(), nn.Linear(32, 12))
        self.discriminator = nn.Sequential(nn.Linear(12, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
        self.curve = []

    def training_step(self, batch, batch_idx):
        (real,) = batch
        g_opt, d_opt = self.optimizers()
        z = torch.randn(len(real), self.latent, device=self.device)
        fake = self.generator(z)
        d_real, d_fake = self.discriminator(real), self.discriminator(fake.detach())
        d_loss = F.softplus(-d_real).mean() + F.softplus(d_fake).mean()
        d_opt.zero_grad()
        self.manual_backward(d_loss)
        d_opt.step()
        g_loss = F.softplus(-self.discriminator(fake)).mean()
        g_opt.zero_grad()
        self.manual_backward(g_loss)
        g_opt.step()
        self.curve += [(g_loss, d_loss)]  # !MG101 TinyGAN.curve

    def configure_optimizers(self):
        return [
            torch.optim.Adam(self.generator.parameters(), 2e-4),
            torch.optim.Adam(self.discriminator.parameters(), 2e-4),
        ]


if __name__ == "__main__":
    loader = DataLoader(TensorDataset(torch.randn(320, 12)), batch_size=16)
    trainer = L.Trainer(
        max_epochs=2,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(TinyGAN(), loader)
