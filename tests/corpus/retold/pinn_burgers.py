"""A PINN: derivatives by autograd.grad in training, and in evaluation too."""

import torch
from torch import nn


class PINN(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 20), nn.Tanh(), nn.Linear(20, 20), nn.Tanh(), nn.Linear(20, 1))

    def forward(self, t, x):
        return self.net(torch.cat([t, x], 1))

    def residual(self, t, x):
        t.requires_grad_(True)
        x.requires_grad_(True)
        u = self(t, x)
        ones = torch.ones_like(u)
        u_t, u_x = torch.autograd.grad(u, (t, x), ones, create_graph=True)
        (u_xx,) = torch.autograd.grad(u_x, x, ones, create_graph=True)
        return u_t + u * u_x - 0.01 / 3.14 * u_xx


pinn = PINN()
opt = torch.optim.Adam(pinn.parameters(), lr=1e-3)
for epoch in range(4):
    pinn.train()
    for _ in range(10):
        t, x = torch.rand(64, 1), torch.rand(64, 1) * 2 - 1
        loss = pinn.residual(t, x).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    pinn.eval()
    worst = max(pinn.residual(torch.rand(64, 1), torch.rand(64, 1)).abs().max().item() for _ in range(5))
    print(epoch, worst)
