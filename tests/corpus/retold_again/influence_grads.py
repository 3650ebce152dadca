"""Per-sample gradients by torch.func for an influence score; results as numbers; ordinary training between."""

import torch
from torch import nn
from torch.func import functional_call, grad, vmap

net = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 3))
opt = torch.optim.SGD(net.parameters(), 0.1)


def loss_of(params, x, y):
    return nn.functional.cross_entropy(functional_call(net, params, (x[None],)), y[None])


scores = []
for step in range(60):
    x, y = torch.randn(32, 32), torch.randint(0, 3, (32,))
    opt.zero_grad()
    nn.functional.cross_entropy(net(x), y).backward()
    opt.step()
    if step % 5 == 0:
        params = {k: v.detach() for k, v in net.named_parameters()}
        g = vmap(grad(loss_of), in_dims=(None, 0, 0))(params, x, y)
        scores.append(sum(t.flatten(1).norm(dim=1) for t in g.values()).max().item())
