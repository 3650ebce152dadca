"""Hierarchical pooling: a balanced tree of merges over the time axis gives one vector per sequence."""

import torch
import torch.nn.functional as F
from torch import nn


class TreePool(nn.Module):
    def __init__(self, inputs=12, width=64, classes=4):
        super().__init__()
        self.lift = nn.Sequential(nn.Linear(inputs, width), nn.Tanh())
        self.merge = nn.Linear(2 * width, width)
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        leaves = self.lift(x)

        def combine(lo, hi):  # !MG306 TreePool.forward.<locals>.combine
            if hi - lo <= 16:
                return leaves[:, lo:hi].mean(1)
            mid = (lo + hi) // 2
            return torch.tanh(self.merge(torch.cat([combine(lo, mid), combine(mid, hi)], dim=-1)))

        return self.head(combine(0, x.size(1)))


def make_batch(rng, batch, length):
    labels = torch.randint(0, 4, (batch,), generator=rng)
    x = 0.5 * torch.randn(batch, length, 12, generator=rng)
    for i, label in enumerate(labels.tolist()):
        x[i, label * length // 4 : (label + 1) * length // 4, 0] += 1.0
    return x, labels


def train_step(model, opt, x, labels):
    opt.zero_grad()
    loss = F.cross_entropy(model(x), labels)
    loss.backward()
    opt.step()
    return loss.item()


def evaluate(model, rng):
    with torch.no_grad():
        x, labels = make_batch(rng, 64, 256)
        return float((model(x).argmax(-1) == labels).float().mean())


if __name__ == "__main__":
    torch.manual_seed(0)
    rng = torch.Generator().manual_seed(1)
    model = TreePool()
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(4):
        losses = [train_step(model, opt, *make_batch(rng, 48, 256)) for _ in range(25)]
        print(f"epoch {epoch} loss {sum(losses) / len(losses):.3f} accuracy {evaluate(model, rng):.2f}")
