"""Two-tower retrieval with large id tables; after Lightning threads "the first batch fits, CUDA OOM in optimizer.step()" and
pytorch#97712."""

# device: virtual:256MiB
# runs out of memory
import argparse

import lightning.pytorch as pl
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Tower(nn.Module):
    def __init__(self, n_ids, dim):
        super().__init__()
        self.table = nn.Embedding(n_ids, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, dim))
        nn.init.normal_(self.table.weight, std=0.1)

    def forward(self, ids):
        return F.normalize(self.mlp(self.table(ids)), dim=-1)


class TwoTower(pl.LightningModule):
    def __init__(self, users, items, dim, lr):
        super().__init__()
        self.save_hyperparameters()
        self.user, self.item = Tower(users, dim), Tower(items, dim)

    def training_step(self, batch, batch_idx):
        u, i = batch
        scores = self.user(u) @ self.item(i).T / 0.1
        loss = F.cross_entropy(scores, torch.arange(len(u), device=scores.device))
        self.log("loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.hparams.lr)  # !MG502 Adam


def interactions(n, users, items):
    g = torch.Generator().manual_seed(0)
    u = torch.randint(users, (n,), generator=g)
    return TensorDataset(u, (u * 7 + torch.randint(3, (n,), generator=g)) % items)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--users", type=int, default=90_000)
    ap.add_argument("--items", type=int, default=50_000)
    ap.add_argument("--dim", type=int, default=128)
    ap.add_argument("--lr", type=float, default=2e-3)
    a = ap.parse_args()
    pl.seed_everything(0)
    trainer = pl.Trainer(
        accelerator="cpu",
        max_steps=4,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(
        TwoTower(a.users, a.items, a.dim, a.lr), DataLoader(interactions(2560, a.users, a.items), batch_size=256)
    )
    print("loss", float(trainer.callback_metrics["loss"]))


if __name__ == "__main__":
    main()
