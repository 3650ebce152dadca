"""Lightning's GAN example with manual optimization, images sampled at the end of each epoch."""

import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader


class GAN(pl.LightningModule):
    def __init__(self, latent_dim=8):
        super().__init__()
        self.automatic_optimization = False
        self.latent_dim = latent_dim
        self.generator = nn.Sequential(nn.Linear(latent_dim, 32), nn.LeakyReLU(0.2), nn.Linear(32, 36), nn.Tanh())
        self.discriminator = nn.Sequential(nn.Linear(36, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
        self.validation_z = torch.randn(8, latent_dim)

    def forward(self, z):
        return self.generator(z)

    def training_step(self, imgs):
        optimizer_g, optimizer_d = self.optimizers()
        z = torch.randn(imgs.shape[0], self.latent_dim)
        self.toggle_optimizer(optimizer_g)
        g_loss = F.binary_cross_entropy_with_logits(self.discriminator(self(z)), torch.ones(imgs.size(0), 1))
        self.log("g_loss", g_loss, prog_bar=True)
        self.manual_backward(g_loss)
        optimizer_g.step()
        optimizer_g.zero_grad()
        self.untoggle_optimizer(optimizer_g)
        self.toggle_optimizer(optimizer_d)
        real = F.binary_cross_entropy_with_logits(self.discriminator(imgs), torch.ones(imgs.size(0), 1))
        fake = F.binary_cross_entropy_with_logits(self.discriminator(self(z).detach()), torch.zeros(imgs.size(0), 1))
        d_loss = (real + fake) / 2
        self.log("d_loss", d_loss, prog_bar=True)
        self.manual_backward(d_loss)
        optimizer_d.step()
        optimizer_d.zero_grad()
        self.untoggle_optimizer(optimizer_d)

    @torch.no_grad()
    def on_train_epoch_end(self):
        self.sample = self(self.validation_z.type_as(self.generator[0].weight))

    def configure_optimizers(self):
        return torch.optim.Adam(self.generator.parameters(), 2e-4), torch.optim.Adam(
            self.discriminator.parameters(), 2e-4
        )


pl.Trainer(
    max_epochs=2,
    accelerator="cpu",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
).fit(GAN(), DataLoader(torch.rand(160, 36), batch_size=16))
