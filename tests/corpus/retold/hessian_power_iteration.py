"""The largest Hessian eigenvalue after each epoch: autograd.grad with a graph that is used many times."""

import torch
from torch import nn

net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.05)


def top_eigenvalue(x, y, iterations=12):
    params = list(net.parameters())
    grads = torch.autograd.grad((net(x) - y).pow(2).mean(), params, create_graph=True)
    v = [torch.randn_like(p) for p in params]
    for _ in range(iterations):
        hv = torch.autograd.grad(sum((g * u).sum() for g, u in zip(grads, v)), params, retain_graph=True)
        norm = torch.stack([h.norm() for h in hv]).norm()
        v = [h / norm for h in hv]
    return norm.item()


for epoch in range(5):
    for _ in range(8):
        x = torch.randn(32, 8)
        loss = (net(x) - x.sum(1, keepdim=True)).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    net.eval()
    print(epoch, top_eigenvalue(x, x.sum(1, keepdim=True)))
    net.train()
