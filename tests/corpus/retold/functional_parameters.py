"""Parameters in a dictionary, functional_call, an optimizer over the values."""

import torch
from torch import nn
from torch.func import functional_call

net = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 2))
params = {k: v.detach().clone().requires_grad_() for k, v in net.named_parameters()}
opt = torch.optim.Adam(params.values(), lr=1e-2)
trace = {"loss": (), "norm": ()}
for _ in range(30):
    x, y = torch.randn(20, 6), torch.randint(2, (20,))
    loss = nn.functional.cross_entropy(functional_call(net, params, (x,)), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    trace["loss"] += (loss,)  # !MG101 trace
    trace["norm"] += (params["0.weight"].norm().item(),)
