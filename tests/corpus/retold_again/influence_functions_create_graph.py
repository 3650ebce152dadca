"""Meta-weighting: a backward with create_graph to differentiate the step, with .grad left as it is."""

import torch
from torch import nn

net = nn.Sequential(nn.Linear(10, 80), nn.Tanh(), nn.Linear(80, 1))
log_lr = torch.zeros(1, requires_grad=True)
opt, opt_lr = torch.optim.SGD(net.parameters(), lr=0.01), torch.optim.SGD([log_lr], lr=0.01)
for it in range(25):
    x, y = torch.randn(32, 10), torch.randn(32, 1)
    inner = nn.functional.mse_loss(net(x), y)
    opt.zero_grad()
    inner.backward(create_graph=True)  # !MG104 -
    squared = sum(p.grad.pow(2).sum() for p in net.parameters())
    outer = (log_lr.exp() * squared).sum()
    (g,) = torch.autograd.grad(outer, log_lr)
    log_lr.grad = g
    opt_lr.step()
    opt.step()
