"""schnetpack issue 250: validation batches need far more memory than training batches of the same size, because
the model computes the forces with `create_graph=True` in validation too; the graph of the forces is never used
there.  Fixed by building it only when the module is in training mode (PR 261).
https://github.com/atomistic-machine-learning/schnetpack/issues/250
"""

from types import SimpleNamespace

import torch
import torch.nn as nn
import torch.nn.functional as F
import lightning.pytorch as pl
from torch.utils.data import DataLoader, TensorDataset

cfg = SimpleNamespace(n_atoms=9, width=128, depth=3, train_batch=256, val_batch=6144, epochs=4, lr=5e-4)


class Potential(nn.Module):
    """Invariant descriptors -> MLP -> energy; forces as the negative gradient."""

    def __init__(self, cfg):
        super().__init__()
        n_pairs = cfg.n_atoms * (cfg.n_atoms - 1) // 2
        self.register_buffer("pairs", torch.combinations(torch.arange(cfg.n_atoms)).t())
        layers, d = [], n_pairs
        for _ in range(cfg.depth):
            layers += [nn.Linear(d, cfg.width), nn.SiLU()]
            d = cfg.width
        self.mlp = nn.Sequential(*layers, nn.Linear(d, 1))

    def descriptors(self, pos):
        diff = pos[:, self.pairs[0]] - pos[:, self.pairs[1]]
        return torch.exp(-diff.pow(2).sum(-1))

    def forward(self, pos):
        pos = pos.detach().requires_grad_(True)
        energy = self.mlp(self.descriptors(pos)).squeeze(-1)
        forces = -torch.autograd.grad(energy.sum(), pos, create_graph=True)[0]  # !MG201 forces
        return energy, forces


class LitPotential(pl.LightningModule):
    def __init__(self, cfg):
        super().__init__()
        self.cfg = cfg
        self.model = Potential(cfg)

    def training_step(self, batch, batch_idx):
        pos, e, f = batch
        energy, forces = self.model(pos)
        loss = F.mse_loss(energy, e) + 10 * F.mse_loss(forces, f)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        pos, e, f = batch
        with torch.enable_grad():
            energy, forces = self.model(pos)
        self.log("val_mae_e", F.l1_loss(energy.detach(), e))
        self.log("val_mae_f", F.l1_loss(forces.detach(), f))

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.cfg.lr)


def conformers(n):
    return TensorDataset(torch.randn(n, cfg.n_atoms, 3), torch.randn(n), torch.randn(n, cfg.n_atoms, 3) * 0.1)


def main():
    pl.seed_everything(8)
    train = DataLoader(conformers(cfg.train_batch * 15), batch_size=cfg.train_batch, shuffle=True)
    val = DataLoader(conformers(cfg.val_batch * 3), batch_size=cfg.val_batch)
    trainer = pl.Trainer(
        max_epochs=cfg.epochs,
        accelerator="auto",
        devices=1,
        logger=False,
        inference_mode=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(LitPotential(cfg), train, val)
    print({k: round(float(v), 4) for k, v in trainer.callback_metrics.items()})


if __name__ == "__main__":
    main()
