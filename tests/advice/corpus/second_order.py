# device: virtual:32MiB
# runs out of memory
# cause: leak|size
"""A penalty on gradients keeps the graph of each inner step for an outer one that is too far away."""

import torch
from torch import nn

net = nn.Sequential(nn.Linear(32, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 1))
weights = [w.detach().clone().requires_grad_() for w in net.parameters()]
meta = torch.nn.Parameter(torch.tensor(0.01))
opt = torch.optim.SGD([meta], 0.01)
fast = weights
for step in range(60):
    x = torch.randn(256, 32)
    h = x
    for w, b in zip(fast[::2], fast[1::2]):
        h = torch.tanh(h @ w.T + b)
    loss = h.square().mean()
    grads = torch.autograd.grad(loss, fast, create_graph=True)
    fast = [w - meta * g for w, g in zip(fast, grads)]
loss.backward()
opt.step()
