"""Interatomic potential with forces from the energy; memory of validation is never given back, only a restart helps.

Retold from pytorch issues 4661 and 7343 and from SchNet / PyG threads on forces ("memory leak when predicting forces").
"""

import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F


class RadialBasis(nn.Module):
    def __init__(self, k=24, cutoff=5.0):
        super().__init__()
        self.register_buffer("centres", torch.linspace(0.5, cutoff, k))
        self.width = cutoff / k

    def forward(self, d):
        return torch.exp(-(((d[..., None] - self.centres) / self.width) ** 2))


class PairPotential(nn.Module):
    """Energy of a cluster as a sum over pairs, each seen through a radial basis and the two elements."""

    def __init__(self, elements=4, k=24, hidden=24):
        super().__init__()
        self.basis = RadialBasis(k)
        self.element = nn.Embedding(elements, k)
        self.mlp = nn.Sequential(nn.Linear(k, hidden), nn.SiLU(), nn.Linear(hidden, 1))

    def forward(self, z, pos):
        diff = pos[:, :, None] - pos[:, None]
        d = (diff.pow(2).sum(-1) + 1e-4).sqrt()
        kind = self.element(z)
        pair = self.mlp(self.basis(d) * (kind[:, :, None] * kind[:, None])).squeeze(-1)
        return pair.sum((1, 2)) / 2


def morse_clusters(n_batches, batch, atoms, seed):
    """Clusters of random points, their energies and forces from a Morse potential."""
    gen = torch.Generator().manual_seed(seed)
    for _ in range(n_batches):
        pos = 3.0 * torch.rand(batch, atoms, 3, generator=gen)
        z = torch.randint(0, 4, (batch, atoms), generator=gen)
        leaf = pos.clone().requires_grad_(True)
        d = torch.pdist(leaf.view(-1, 3)) if batch == 1 else torch.cdist(leaf, leaf)
        energy = 0.01 * ((1 - torch.exp(-(d - 1.5))) ** 2 - 1).sum((1, 2))
        (grad,) = torch.autograd.grad(energy.sum(), leaf)
        yield z, pos, energy.detach(), -grad


def predict(model, z, pos):
    pos = pos.clone().requires_grad_(True)
    energy = model(z, pos)
    energy.sum().backward(create_graph=True)  # !MG104 pos
    return energy, -pos.grad


def fit_batch(model, optimizer, z, pos, energy, forces, rho):
    e, f = predict(model, z, pos)
    loss = F.mse_loss(e, energy) / pos.shape[1] + rho * F.mse_loss(f, forces)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return float(loss.detach())


def validate(model, optimizer, batches):
    model.eval()
    errors = []
    for z, pos, energy, forces in batches:
        _, f = predict(model, z, pos)
        errors.append(float((f - forces).detach().abs().mean()))
        optimizer.zero_grad()
    model.train()
    return sum(errors) / len(errors)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--atoms", type=int, default=24)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--rho", type=float, default=0.9)
    args = parser.parse_args()
    torch.manual_seed(0)
    model = PairPotential()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(args.epochs):
        losses = [
            fit_batch(model, optimizer, *batch, args.rho) for batch in morse_clusters(20, args.batch, args.atoms, epoch)
        ]
        mae = validate(model, optimizer, morse_clusters(10, args.batch, args.atoms, 1000))
        print(f"epoch {epoch}: loss {sum(losses) / len(losses):.3f} force MAE {mae:.3f}")
