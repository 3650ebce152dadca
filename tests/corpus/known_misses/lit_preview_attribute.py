# A known miss: what an attribute keeps of the last batch is told as made again before the old one is dropped (MG305).
"""Lightning itself once kept the step's output alive into the next forward, which made a neural ODE run out of memory; the
fix there was to drop it before. Here the module keeps its last reconstruction for a preview it draws now and then.
https://github.com/Lightning-AI/pytorch-lightning/pull/9336
"""

import lightning.pytorch as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Jitter(nn.Module):
    """Averages many shifted and noisy copies of the input; has no parameters and needs no gradient."""

    def __init__(self, copies=26):
        super().__init__()
        self.copies = copies

    @torch.no_grad()
    def forward(self, x):
        many = x.unsqueeze(0).repeat(self.copies, 1, 1)
        many = many * torch.rand(self.copies, 1, 1, device=x.device)
        return many.mean(0)


class LitRecon(pl.LightningModule):
    def __init__(self, dim=1024, bands=96):
        super().__init__()
        self.jitter = Jitter()
        self.enc = nn.Linear(dim, 160)
        self.bands = nn.Parameter(torch.rand(160, bands))
        self.preview = None
        self.drawn = []

    def training_step(self, batch, _):
        (x,) = batch
        code = self.enc(self.jitter(x))
        recon = code.unsqueeze(-1) * self.bands
        self.preview = recon.detach()  # !MG303 LitRecon.preview
        pick = torch.randint(recon.shape[1], (4,), device=self.device)
        return recon[:, pick].square().mean()

    def on_train_batch_end(self, outputs, batch, batch_idx):
        if batch_idx % 20 == 19:
            self.drawn.append(self.preview[0].mean().item())

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), 1e-3)


if __name__ == "__main__":
    ds = TensorDataset(torch.randn(768 * 20, 1024))
    lit = LitRecon()
    pl.Trainer(
        max_epochs=2,
        accelerator="auto",
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    ).fit(lit, DataLoader(ds, batch_size=768))
    print(lit.drawn)
