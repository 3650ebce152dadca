"""A callback hook that samples through a method of the model, in eval mode with gradients on."""

import warnings
import torch
import torch.nn as nn
import torch.nn.functional as F
import lightning as L
from torch.utils.data import DataLoader, TensorDataset

warnings.filterwarnings("ignore")


class ConvVAE(L.LightningModule):
    def __init__(self, latent=32, width=32):
        super().__init__()
        self.latent = latent
        self.enc = nn.Sequential(
            nn.Conv2d(1, width, 4, 2, 1),
            nn.ReLU(),
            nn.Conv2d(width, width, 4, 2, 1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(width * 49, 2 * latent),
        )
        self.fc = nn.Linear(latent, width * 49)
        self.dec = nn.Sequential(
            nn.ConvTranspose2d(width, width, 4, 2, 1),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.ConvTranspose2d(width, width, 4, 2, 1),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Conv2d(width, 1, 3, padding=1),
        )
        self.grids = []

    def decode(self, z):
        return self.dec(F.relu(self.fc(z)).view(len(z), -1, 7, 7))

    def training_step(self, batch, _):
        (x,) = batch
        mu, logvar = self.enc(x).chunk(2, 1)
        z = mu + torch.randn_like(mu) * (0.5 * logvar).exp()
        rec = F.binary_cross_entropy_with_logits(self.decode(z), x, reduction="sum") / len(x)
        kl = -0.5 * (1 + logvar - mu**2 - logvar.exp()).sum(1).mean()
        self.log_dict({"rec": rec, "kl": kl})
        return rec + kl

    def on_train_epoch_end(self):
        self.eval()
        grid = torch.zeros(10 * 16, 28, 28)
        for row in range(10):
            z = torch.randn(16, self.latent, device=self.device)
            z[:, row] = torch.linspace(-3, 3, 16)
            imgs = self.decode(z)  # !MG201 ConvVAE.decode
            grid[row * 16 : (row + 1) * 16] = imgs.sigmoid().squeeze(1).detach().cpu()
        self.grids.append(grid.numpy())
        self.train()
        print(f"epoch {self.current_epoch} mean brightness {grid.mean():.3f}")

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=2e-3)


if __name__ == "__main__":
    L.seed_everything(3)
    loader = DataLoader(TensorDataset(torch.rand(192, 1, 28, 28)), batch_size=16, shuffle=True)
    trainer = L.Trainer(
        max_epochs=3,
        accelerator="cpu",
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(ConvVAE(), loader)
