"""Snapshot ensemble of a tabular churn model: cyclic learning rate, one committee member per cycle."""
# needs an allocator: a copy an epoch is seen by what stays allocated.

import copy
import math
import torch
from torch import nn
import lightning.pytorch as pl


class ResMLP(nn.Module):
    def __init__(self, d_in, width=1024, depth=3):
        super().__init__()
        self.inp = nn.Linear(d_in, width)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.GELU()) for _ in range(depth)
        )
        self.out = nn.Linear(width, 1)

    def forward(self, x):
        h = self.inp(x)
        for b in self.blocks:
            h = h + b(h)
        return self.out(h).squeeze(-1)


class ChurnModule(pl.LightningModule):
    def __init__(self, d_in=60, lr=0.05, cycle_len=32):
        super().__init__()
        self.save_hyperparameters()
        self.model = ResMLP(d_in)

    def training_step(self, batch, idx):
        x, y = batch
        loss = nn.functional.binary_cross_entropy_with_logits(self.model(x), y)
        self.log("loss", loss)
        return loss

    def configure_optimizers(self):
        opt = torch.optim.SGD(self.parameters(), lr=self.hparams.lr)
        n = self.hparams.cycle_len
        sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: 0.5 * (math.cos(math.pi * (s % n) / n) + 1) + 1e-3)
        return [opt], [{"scheduler": sched, "interval": "step"}]


class SnapshotEnsemble(pl.Callback):
    def __init__(self):
        self.members = []

    def on_train_epoch_end(self, trainer, pl_module):
        self.members.append(copy.deepcopy(pl_module.model).eval().requires_grad_(False))  # !MG308 SnapshotEnsemble.members

    @torch.no_grad()
    def predict(self, x):
        return torch.stack([m(x).sigmoid() for m in self.members]).mean(0)


if __name__ == "__main__":
    pl.seed_everything(99)
    x = torch.randn(2048, 60)
    y = ((x[:, :5].sum(1) + 0.5 * torch.randn(2048)) > 0).float()
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=64, shuffle=True)
    snap = SnapshotEnsemble()
    trainer = pl.Trainer(
        max_epochs=8,
        accelerator="cpu",
        callbacks=[snap],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(ChurnModule(), loader)
    acc = ((snap.predict(x[:256]) > 0.5).float() == y[:256]).float().mean()
    print(f"{len(snap.members)} members, committee accuracy {acc:.3f}")
