# A known miss: the line within a method of the model that samples; the line that calls the method is named.
"""Lightning module: small diffusion model on mel patches, draws samples for the logger when an epoch is over."""

import warnings

import lightning as L
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

warnings.filterwarnings("ignore")


class Block(nn.Module):
    def __init__(self, cin, cout, temb):
        super().__init__()
        self.c1, self.c2 = nn.Conv2d(cin, cout, 3, padding=1), nn.Conv2d(cout, cout, 3, padding=1)
        self.t = nn.Linear(temb, cout)
        self.skip = nn.Conv2d(cin, cout, 1)
        self.norm = nn.GroupNorm(4, cout)

    def forward(self, x, t):
        h = F.silu(self.norm(self.c1(x)))
        h = h + self.t(t)[:, :, None, None]
        return F.silu(self.c2(h)) + self.skip(x)


class UNet(nn.Module):
    def __init__(self, ch=12, temb=32):
        super().__init__()
        self.temb = temb
        self.mlp = nn.Sequential(nn.Linear(temb, temb), nn.SiLU())
        self.d1, self.d2 = Block(1, ch, temb), Block(ch, 2 * ch, temb)
        self.u1 = Block(3 * ch, ch, temb)
        self.out = nn.Conv2d(ch, 1, 1)

    def forward(self, x, t):
        freq = torch.exp(torch.arange(self.temb // 2) * -0.4)
        ang = t.float()[:, None] * freq
        emb = self.mlp(torch.cat([ang.sin(), ang.cos()], 1))
        h1 = self.d1(x, emb)
        h2 = self.d2(F.avg_pool2d(h1, 2), emb)
        return self.out(self.u1(torch.cat([F.interpolate(h2, scale_factor=2), h1], 1), emb))


class MelDiffusion(L.LightningModule):
    def __init__(self, steps=20, lr=2e-3, n_samples=4):
        super().__init__()
        self.save_hyperparameters()
        self.net = UNet()
        beta = torch.linspace(1e-3, 0.2, steps)
        self.register_buffer("beta", beta)
        self.register_buffer("abar", torch.cumprod(1 - beta, 0))

    def forward(self, x, t):
        return self.net(x, t)

    def training_step(self, batch, _):
        (x,) = batch
        t = torch.randint(0, self.hparams.steps, (len(x),))
        noise = torch.randn_like(x)
        a = self.abar[t][:, None, None, None]
        loss = F.mse_loss(self(a.sqrt() * x + (1 - a).sqrt() * noise, t), noise)
        self.log("train/loss", loss, prog_bar=False)
        return loss

    def validation_step(self, batch, _):
        (x,) = batch
        t = torch.full((len(x),), self.hparams.steps // 2)
        noise = torch.randn_like(x)
        a = self.abar[t][:, None, None, None]
        self.log("val/loss", F.mse_loss(self(a.sqrt() * x + (1 - a).sqrt() * noise, t), noise))

    def sample(self, n):
        x = torch.randn(n, 1, 32, 32)
        for k in reversed(range(self.hparams.steps)):
            eps = self.net(x, torch.full((n,), k))  # !MG201 MelDiffusion
            beta, abar = self.beta[k], self.abar[k]
            x = (x - beta / (1 - abar).sqrt() * eps) / (1 - beta).sqrt()
            if k:
                x = x + beta.sqrt() * torch.randn_like(x)
        return x.clamp(-3, 3)

    def on_train_epoch_end(self):
        self.net.eval()
        mels = self.sample(self.hparams.n_samples)
        self.print(f"epoch {self.current_epoch}: samples mean {mels.mean().item():.3f} std {mels.std().item():.3f}")
        self.net.train()

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)


def mels(n, seed):
    g = torch.Generator().manual_seed(seed)
    f = torch.rand(n, 1, 1, 1, generator=g) * 6 + 1
    grid = torch.linspace(0, 3.14, 32)
    return TensorDataset(torch.sin(f * grid[None, None, :, None]) * torch.cos(grid)[None, None, None, :])


if __name__ == "__main__":
    L.seed_everything(8, verbose=False)
    model = MelDiffusion()
    trainer = L.Trainer(
        max_epochs=3,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(model, DataLoader(mels(248, 1), batch_size=8, shuffle=True), DataLoader(mels(32, 2), batch_size=8))
