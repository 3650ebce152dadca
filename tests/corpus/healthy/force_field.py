"""An interatomic potential: forces are the negative gradient of the energy, in training and in validation."""

import torch
from torch import nn


class Potential(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(1, 32), nn.SiLU(), nn.Linear(32, 1))

    def forward(self, positions):
        positions = positions.requires_grad_(True)
        distances = (positions[:, :, None] - positions[:, None]).pow(2).sum(-1, keepdim=True)
        energy = self.net(distances).sum((1, 2, 3))
        (forces,) = torch.autograd.grad(energy.sum(), positions, create_graph=self.training)
        return energy, -forces


model = Potential()
optimizer = torch.optim.Adam(model.parameters(), 1e-3)
for epoch in range(2):
    model.train()
    for _ in range(10):
        energy, forces = model(torch.randn(4, 5, 3))
        loss = energy.pow(2).mean() + forces.pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    mae = 0.0
    for _ in range(8):
        energy, forces = model(torch.randn(4, 5, 3))
        mae += forces.abs().mean().item()
