"""Per-task gradients on a shared trunk: the last backward does not retain. Uncertainty weights, windows of losses."""

from collections import deque

import torch
from torch import nn

trunk = nn.Sequential(nn.Linear(16, 64), nn.ReLU())
heads = nn.ModuleDict({"a": nn.Linear(64, 1), "b": nn.Linear(64, 3)})
log_var = nn.Parameter(torch.zeros(2))
params = [*trunk.parameters(), *heads.parameters(), log_var]
optimizer = torch.optim.Adam(params, 1e-3)
window = {"a": deque(maxlen=20), "b": deque(maxlen=20)}
for _ in range(35):
    x = torch.randn(16, 16)
    h = trunk(x)
    la = nn.functional.mse_loss(heads["a"](h), x.sum(1, keepdim=True))
    lb = nn.functional.cross_entropy(heads["b"](h), torch.randint(3, (16,)))
    optimizer.zero_grad()
    (la * (-log_var[0]).exp() + log_var[0]).backward(retain_graph=True)
    (lb * (-log_var[1]).exp() + log_var[1]).backward()
    optimizer.step()
    window["a"].append(la.detach())
    window["b"].append(lb.detach())
