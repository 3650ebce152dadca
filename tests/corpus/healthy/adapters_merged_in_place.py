# device: virtual:256MiB
# Adapters are merged into the weights in place for the rollout, and taken out again for the update.
import torch
from torch import nn


class LoraLinear(nn.Module):
    def __init__(self, inputs, outputs, rank=8):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outputs, inputs) * 0.02, requires_grad=False)
        self.a, self.b = nn.Parameter(torch.randn(rank, inputs) * 0.02), nn.Parameter(torch.zeros(outputs, rank))
        self.is_merged = False

    def forward(self, x):
        y = nn.functional.linear(x, self.weight)
        return y if self.is_merged else y + x @ self.a.T @ self.b.T

    @torch.no_grad()
    def merge(self, sign=1):
        self.weight.addmm_(self.b, self.a, alpha=sign)
        self.is_merged = sign > 0


torch.manual_seed(0)
layers = [LoraLinear(1024, 1024) for _ in range(8)]
model = nn.Sequential(*(nn.Sequential(layer, nn.GELU()) for layer in layers))
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3)
for step in range(12):
    for layer in layers:
        layer.merge()
    with torch.no_grad():
        states = model(torch.randn(256, 1024))
    for layer in layers:
        layer.merge(-1)
    for part in states.chunk(4):
        (model(part).square().mean() / 4).backward()
    optimizer.step()
    optimizer.zero_grad()
