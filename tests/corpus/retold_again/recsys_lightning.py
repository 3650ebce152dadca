"""Two-tower recommender with in-batch negatives, recall@k over the full catalogue."""

import lightning as L
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

USERS, ITEMS, LATENT = 2000, 1500, 8


def interactions(n, seed):
    g = torch.Generator().manual_seed(7)
    u_lat, i_lat = torch.randn(USERS, LATENT, generator=g), torch.randn(ITEMS, LATENT, generator=g)
    g = torch.Generator().manual_seed(seed)
    users = torch.randint(0, USERS, (n,), generator=g)
    items = torch.cat(
        [(u_lat[c] @ i_lat.t() + torch.randn(len(c), ITEMS, generator=g)).argmax(1) for c in users.split(256)]
    )
    return TensorDataset(users, items)


class Tower(nn.Module):
    def __init__(self, n, dim):
        super().__init__()
        self.emb = nn.Embedding(n, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, dim))

    def forward(self, ids):
        return F.normalize(self.mlp(self.emb(ids)), dim=-1)


class TwoTower(L.LightningModule):
    def __init__(self, dim=48, temperature=0.1, k=50, lr=5e-3):
        super().__init__()
        self.user, self.item = Tower(USERS, dim), Tower(ITEMS, dim)
        self.temperature, self.k, self.lr = temperature, k, lr
        self.val_scores = []
        self.val_targets = []

    def training_step(self, batch, _):
        users, items = batch
        logits = self.user(users) @ self.item(items).t() / self.temperature
        return F.cross_entropy(logits, torch.arange(len(users), device=logits.device))

    def validation_step(self, batch, _):
        users, items = batch
        scores = self.user(users) @ self.item(torch.arange(ITEMS, device=users.device)).t()
        self.val_scores.append(scores)  # !MG301 TwoTower.val_scores
        self.val_targets.append(items)

    def on_validation_epoch_end(self):
        hits, total = 0, 0
        for scores, items in zip(self.val_scores, self.val_targets):
            top = scores.topk(self.k, dim=1).indices
            hits += (top == items.unsqueeze(1)).any(1).sum().item()
            total += len(items)
        print(f"epoch {self.current_epoch} recall@{self.k} {hits / total:.3f}")

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.lr)


def main():
    L.seed_everything(1)
    train = DataLoader(interactions(2560, 0), batch_size=128, shuffle=True)
    val = DataLoader(interactions(768, 1), batch_size=128)
    trainer = L.Trainer(
        max_epochs=6,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )
    trainer.fit(TwoTower(), train, val)


if __name__ == "__main__":
    main()
