"""A mixture of experts whose router appends a balancing loss at every forward."""

import torch
from torch import nn


class Router(nn.Module):
    def __init__(self, dim, experts):
        super().__init__()
        self.gate = nn.Linear(dim, experts)
        self.experts = nn.ModuleList(nn.Linear(dim, dim) for _ in range(experts))
        self.balance_losses = []

    def forward(self, x):
        probs = torch.softmax(self.gate(x), -1)
        importance = probs.mean(0)
        self.balance_losses.append(importance.pow(2).sum() * len(self.experts))  # !MG101 Router.balance_losses
        return sum(probs[:, i : i + 1] * expert(x) for i, expert in enumerate(self.experts))


class MoE(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Router(16, 3) for _ in range(2))
        self.out = nn.Linear(16, 4)

    def forward(self, x):
        for layer in self.layers:
            x = x + layer(x)
        return self.out(x), sum(layer.balance_losses[-1] for layer in self.layers)


model = MoE()
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(30):
    logits, aux = model(torch.randn(16, 16))
    loss = nn.functional.cross_entropy(logits, torch.randint(4, (16,))) + 0.01 * aux
    opt.zero_grad()
    loss.backward()
    opt.step()
