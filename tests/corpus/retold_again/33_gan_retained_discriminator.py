"""AIJack: an attack ran out of GPU memory, and the owner found that retain_graph=True in the backward call kept
PyTorch from freeing the graph (https://github.com/Koukyosyumei/AIJack/issues/133). Retold with a Lightning GAN in
manual optimization, where the fakes are not detached for the critic and the graph is retained instead."""

import torch
import torch.nn as nn
import torch.nn.functional as F
import lightning.pytorch as pl
from torch.utils.data import DataLoader, IterableDataset


class PointClouds(IterableDataset):
    def __init__(self, batches, batch=24, points=1024):
        self.batches, self.batch, self.points = batches, batch, points

    def __iter__(self):
        for _ in range(self.batches):
            yield torch.randn(self.batch, self.points, 3)


class Generator(nn.Module):
    def __init__(self, z=16, points=1024):
        super().__init__()
        self.grid = nn.Parameter(torch.rand(points, 2))
        self.net = nn.Sequential(nn.Linear(z + 2, 32), nn.GELU(), nn.Linear(32, 3))

    def forward(self, z):
        grid = self.grid.expand(len(z), -1, -1)
        return self.net(torch.cat([grid, z.unsqueeze(1).expand(-1, grid.size(1), -1)], -1))


class Critic(nn.Module):
    def __init__(self, d=48):
        super().__init__()
        self.points = nn.Sequential(nn.Linear(3, d), nn.GELU(), nn.Linear(d, d), nn.GELU())
        self.score = nn.Linear(d, 1)

    def forward(self, cloud):
        return self.score(self.points(cloud).amax(1))


class LitPointGAN(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.gen, self.critic = Generator(), Critic()

    def training_step(self, real, batch_idx):
        opt_g, opt_c = self.optimizers()
        fake = self.gen(torch.randn(len(real), 16, device=self.device))

        opt_c.zero_grad()
        c_loss = F.softplus(self.critic(fake)).mean() + F.softplus(-self.critic(real)).mean()
        self.manual_backward(c_loss, retain_graph=True)  # !MG103 c_loss
        opt_c.step()

        opt_g.zero_grad()
        g_loss = F.softplus(-self.critic(fake)).mean()
        self.manual_backward(g_loss)
        opt_g.step()
        if batch_idx % 20 == 0:
            print(batch_idx, c_loss.item() is not None, g_loss.item() is not None)

    def configure_optimizers(self):
        return [torch.optim.Adam(self.gen.parameters(), 2e-4), torch.optim.Adam(self.critic.parameters(), 2e-4)]


if __name__ == "__main__":
    pl.seed_everything(3)
    trainer = pl.Trainer(
        max_epochs=1,
        accelerator="auto",
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(LitPointGAN(), DataLoader(PointClouds(32), batch_size=None))
