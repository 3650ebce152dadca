"""A physics-informed net: the residual of the evaluation is taken with create_graph, as in training."""

import torch
from torch import nn

model = nn.Sequential(nn.Linear(4, 512), nn.Tanh(), nn.Linear(512, 512), nn.Tanh(), nn.Linear(512, 1))
opt = torch.optim.Adam(model.parameters(), lr=1e-3)


def train_epoch():
    model.train()
    for _ in range(6):
        x = torch.randn(1024, 4, requires_grad=True)
        u = model(x)
        du = torch.autograd.grad(u.sum(), x, create_graph=True)[0]
        loss = (du.sum(1) - x.detach().sum(1)).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()


def evaluate():
    model.eval()
    worst = 0.0
    for _ in range(6):
        x = torch.randn(1024, 4, requires_grad=True)
        u = model(x)
        du = torch.autograd.grad(u.sum(), x, create_graph=True)[0]  # !MG201 du
        residual = (du.sum(1) - x.detach().sum(1)).abs()
        worst = max(worst, residual.max().item())
    return worst


for epoch in range(3):
    train_epoch()
    print(evaluate())
