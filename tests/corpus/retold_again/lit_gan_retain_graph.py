"""Lightning PR 5771 (review of the manual optimization docs): the GAN snippet passed around had
`self.manual_backward(loss, opt_d, retain_graph=True)`, and people copy it.  Here a GAN for calorimeter
showers: the discriminator's loss is backpropagated with retain_graph=True although its graph is not used again,
so its activations stay while the generator's pass runs.
https://github.com/Lightning-AI/pytorch-lightning/pull/5771
"""

import torch
import torch.nn as nn
import torch.nn.functional as F
import lightning.pytorch as pl
from torch.utils.data import DataLoader, TensorDataset


class ShowerGenerator(nn.Module):
    def __init__(self, z_dim=16):
        super().__init__()
        self.fc = nn.Linear(z_dim, 8 * 16 * 16)
        self.up = nn.Sequential(nn.ConvTranspose2d(8, 4, 2, 2), nn.ReLU(), nn.ConvTranspose2d(4, 1, 2, 2))

    def forward(self, z):
        return F.softplus(self.up(self.fc(z).view(-1, 8, 16, 16)))


class ShowerCritic(nn.Module):
    """Wide at full resolution: most of the memory is here."""

    def __init__(self, width=16):
        super().__init__()
        self.inp = nn.Conv2d(1, width, 1)
        self.norm = nn.GroupNorm(4, width)
        self.out = nn.Conv2d(width, 4, 4, 4)
        self.fc = nn.Linear(4 * 16 * 16, 1)

    def forward(self, x):
        h = F.silu(self.norm(self.inp(x)))
        return self.fc(F.silu(self.out(h)).flatten(1))


class LitShowerGAN(pl.LightningModule):
    def __init__(self, z_dim=16, lr=1e-4):
        super().__init__()
        self.z_dim, self.lr = z_dim, lr
        self.gen, self.critic = ShowerGenerator(z_dim), ShowerCritic()
        self.automatic_optimization = False

    def hinge_real(self, score):
        return F.relu(1 - score).mean()

    def hinge_fake(self, score):
        return F.relu(1 + score).mean()

    def training_step(self, batch, batch_idx):
        (shower,) = batch
        opt_g, opt_d = self.optimizers()
        fake = self.gen(torch.randn(shower.size(0), self.z_dim, device=self.device))

        opt_d.zero_grad()
        d_loss = self.hinge_real(self.critic(shower)) + self.hinge_fake(self.critic(fake.detach()))
        self.manual_backward(d_loss, retain_graph=True)  # !MG103 d_loss
        opt_d.step()

        opt_g.zero_grad()
        g_loss = -self.critic(fake).mean()
        self.manual_backward(g_loss)
        opt_g.step()
        self.log_dict({"d_loss": d_loss.detach(), "g_loss": g_loss.detach()})

    def configure_optimizers(self):
        return (
            torch.optim.Adam(self.gen.parameters(), lr=self.lr),
            torch.optim.Adam(self.critic.parameters(), lr=self.lr),
        )


def main():
    pl.seed_everything(13)
    data = TensorDataset(torch.rand(40 * 17, 1, 64, 64).pow(6))
    trainer = pl.Trainer(
        max_epochs=2,
        accelerator="auto",
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(LitShowerGAN(), DataLoader(data, batch_size=40, shuffle=True))


if __name__ == "__main__":
    main()
