"""A residual with second derivatives needs the graph of the first one in evaluation as well."""

import torch
from torch import nn

model = nn.Sequential(nn.Linear(2, 512), nn.Tanh(), nn.Linear(512, 512), nn.Tanh(), nn.Linear(512, 1))
opt = torch.optim.Adam(model.parameters(), lr=1e-3)


def residual(x, train):
    u = model(x)
    du = torch.autograd.grad(u.sum(), x, create_graph=True)[0]
    ddu = torch.autograd.grad(du[:, 0].sum(), x, create_graph=train)[0]
    return ddu[:, 0] - u[:, 0]


for epoch in range(3):
    model.train()
    for _ in range(6):
        loss = residual(torch.randn(1024, 2, requires_grad=True), True).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    model.eval()
    for _ in range(6):
        print(residual(torch.randn(1024, 2, requires_grad=True), False).detach().abs().max().item())
