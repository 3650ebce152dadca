# Router probabilities of all micro-batches are kept for the balance of experts, which is printed after the step.
import torch
from torch import nn


class MoE(nn.Module):
    def __init__(self, experts=8):
        super().__init__()
        self.router = nn.Linear(64, experts)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64)) for _ in range(experts))
        self.seen = []

    def forward(self, x):
        weights = self.router(x).softmax(-1)
        mixed = torch.stack([expert(x) for expert in self.experts], -1) * weights[:, None]
        self.seen.append(mixed)  # !MG106 MoE.seen
        return mixed.sum(-1)


torch.manual_seed(0)
moe = MoE()
head = nn.Linear(64, 5)
optimizer = torch.optim.AdamW([*moe.parameters(), *head.parameters()])
for step in range(4):
    for _ in range(6):
        loss = nn.functional.cross_entropy(head(moe(torch.randn(128, 64))), torch.randint(0, 5, (128,))) / 6
        loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(step, torch.stack([m.detach().mean() for m in moe.seen]).mean().item())
    moe.seen.clear()
