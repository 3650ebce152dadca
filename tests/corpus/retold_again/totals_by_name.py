"""Loss terms by name are summed with dict.get."""

import torch
from torch import nn


class MultiTask(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(20, 64), nn.ReLU())
        self.heads = nn.ModuleDict({"age": nn.Linear(64, 1), "smile": nn.Linear(64, 2), "pose": nn.Linear(64, 3)})

    def losses(self, batch):
        h = self.trunk(batch["x"])
        return {
            "age": (self.heads["age"](h).squeeze(1) - batch["age"]).abs().mean(),
            "smile": nn.functional.cross_entropy(self.heads["smile"](h), batch["smile"]),
            "pose": (self.heads["pose"](h) - batch["pose"]).pow(2).mean(),
        }


def batches(n):
    for _ in range(n):
        yield {
            "x": torch.randn(16, 20),
            "age": torch.rand(16),
            "smile": torch.randint(2, (16,)),
            "pose": torch.randn(16, 3),
        }


model = MultiTask()
opt = torch.optim.Adam(model.parameters())
for epoch in range(2):
    totals = {}
    for batch in batches(20):
        terms = model.losses(batch)
        opt.zero_grad()
        sum(terms.values()).backward()
        opt.step()
        for name, value in terms.items():
            totals[name] = totals.get(name, 0.0) + value  # !MG101 totals
    print({name: round(value.item() / 20, 3) for name, value in totals.items()})
