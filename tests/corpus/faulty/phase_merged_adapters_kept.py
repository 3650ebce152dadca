# device: virtual:256MiB
# Adapters are merged into copies of the weights for the engine that generates; the merged weights stay.
import torch
from torch import nn


class LoraLinear(nn.Module):
    def __init__(self, inputs, outputs, rank=8):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outputs, inputs) * 0.02, requires_grad=False)
        self.a, self.b = nn.Parameter(torch.randn(rank, inputs) * 0.02), nn.Parameter(torch.zeros(outputs, rank))

    def forward(self, x):
        return nn.functional.linear(x, self.weight) + x @ self.a.T @ self.b.T

    @torch.no_grad()
    def merged(self):
        return self.weight + self.b @ self.a


class Syncer:
    def __init__(self, model):
        self.model = model
        self.merged = {}

    def sync(self):
        for name, module in self.model.named_modules():
            if isinstance(module, LoraLinear):
                self.merged[name] = module.merged()  # !MG313 Syncer.merged
        return sum(float(value[0, 0]) for value in self.merged.values())


torch.manual_seed(0)
model = nn.Sequential(*(nn.Sequential(LoraLinear(1024, 1024), nn.GELU()) for _ in range(8)))
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3)
syncer = Syncer(model)
for step in range(12):
    for micro in range(4):
        (model(torch.randn(64, 1024)).square().mean() / 4).backward()
    optimizer.step()
    optimizer.zero_grad()
    syncer.sync()
