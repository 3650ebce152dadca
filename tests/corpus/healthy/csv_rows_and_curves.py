# device: cpu
import json

import torch
from torch import nn

net = nn.Linear(16, 3)
opt = torch.optim.Adam(net.parameters())
rows, curves = [], {"loss": [], "norm": []}
for step in range(600):
    loss = nn.functional.cross_entropy(net(torch.randn(8, 16)), torch.randint(0, 3, (8,)))
    opt.zero_grad()
    loss.backward()
    opt.step()
    norm = sum(float(p.grad.norm()) for p in net.parameters())
    rows.append({"step": step, "loss": float(loss), "norm": norm, "tags": ["a", "b"]})
    curves["loss"].append(float(loss))
    curves["norm"].append(norm)
    if step % 100 == 99:
        json.dumps(rows)
