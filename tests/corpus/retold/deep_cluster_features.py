"""Clustering of features recomputed for the whole set each epoch: epoch 2 needs twice the memory of epoch 1 (StackOverflow question on `c = torch.zeros(...)` run twice)."""

import torch
import torch.nn as nn
import torch.nn.functional as F

N, IN, FEAT, K = 24_000, 32, 768, 20


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(IN, 256), nn.ReLU(), nn.Linear(256, FEAT), nn.ReLU())
        self.top = nn.Linear(FEAT, K)

    def forward(self, x):
        return self.top(self.features(x))


@torch.no_grad()
def compute_features(model, data, batch=2000):
    out = torch.empty(len(data), FEAT)
    for i in range(0, len(data), batch):
        out[i : i + batch] = model.features(data[i : i + batch])
    return out


@torch.no_grad()
def kmeans(x, k, rounds=2):
    centres = x[torch.randperm(len(x))[:k]].clone()
    for _ in range(rounds):
        assign = torch.cat([torch.cdist(c, centres).argmin(1) for c in x.split(2000)])
        sums = torch.zeros_like(centres).index_add_(0, assign, x)
        counts = torch.bincount(assign, minlength=k).clamp(min=1)
        centres = sums / counts.unsqueeze(1)
    return assign, centres


def nmi_like(a, b):
    return (a == b).float().mean().item()


torch.manual_seed(70)
data = torch.randn(N, IN) + 2 * torch.randn(K, IN)[torch.arange(N) % K]
model = Backbone()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
previous = torch.zeros(N, dtype=torch.long)

for epoch in range(4):
    model.eval()
    features = compute_features(model, data)  # !MG305 features
    assign, centres = kmeans(features, K)
    drift = nmi_like(assign, previous)
    previous = assign

    model.train()
    for idx in torch.randperm(N)[:2400].split(600):
        loss = F.cross_entropy(model(data[idx]), assign[idx])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    spread = (features[:500] - centres[assign[:500]]).pow(2).mean().item()
    print(f"epoch {epoch} loss {loss.item():.3f} stable {drift:.3f} spread {spread:.4f}")
