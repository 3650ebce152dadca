"""A force field whose forward takes the derivative itself: the embedding, through which that does not pass, comes first.

Evaluation needs the graph, and uses it up; under no_grad it would fail.
"""

import torch
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"


class ContinuousFilters(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.embedding = nn.Embedding(10, width)
        self.filters = nn.Sequential(nn.Linear(16, width), nn.SiLU(), nn.Linear(width, width))
        self.energy = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 1))
        self.register_buffer("centers", torch.linspace(0, 5, 16))

    def forward(self, kinds, positions):
        positions = positions.detach().requires_grad_(True)
        atoms = self.embedding(kinds)
        distances = (positions[:, :, None] - positions[:, None] + 1e-3).norm(dim=-1)
        radial = torch.exp(-((distances[..., None] - self.centers) ** 2))
        atoms = atoms + (self.filters(radial) * atoms[:, None]).sum(2)
        energy = self.energy(atoms).sum((1, 2))
        (gradient,) = torch.autograd.grad(energy.sum(), positions, create_graph=self.training)
        return energy, -gradient


def molecules(count):
    return torch.randint(0, 10, (count, 6), device=device), torch.randn(count, 6, 3, device=device)


def evaluate(model):
    model.eval()
    error = 0.0
    for _ in range(6):
        energy, forces = model(*molecules(128))
        error += forces.abs().mean().item() + energy.abs().mean().item()
    model.train()
    return error / 6


torch.manual_seed(0)
model = ContinuousFilters().to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for epoch in range(3):
    for _ in range(12):
        optimizer.zero_grad()
        energy, forces = model(*molecules(32))
        (energy.pow(2).mean() + forces.pow(2).mean()).backward()
        optimizer.step()
    print(f"epoch {epoch}: {evaluate(model):.3f}")
