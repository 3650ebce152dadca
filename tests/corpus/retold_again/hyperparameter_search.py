# device: virtual:256MiB
"""Random search: 12 trials, a study object keeps parameters and scores, the best model's weights as numpy."""

import random
from dataclasses import dataclass, field
import torch
from torch import nn


@dataclass
class Trial:
    number: int
    params: dict
    score: float = float("nan")
    curve: list = field(default_factory=list)


trials, best = [], None
for n in range(12):
    t = Trial(n, {"lr": 10 ** random.uniform(-4, -1), "width": random.choice([64, 128, 256])})
    net = nn.Sequential(nn.Linear(64, t.params["width"]), nn.ReLU(), nn.Linear(t.params["width"], 1))
    opt = torch.optim.Adam(net.parameters(), t.params["lr"])
    for step in range(12):
        x = torch.randn(64, 64)
        loss = (net(x).squeeze(1) - x.mean(1)).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        t.curve.append(loss.item())
    t.score = t.curve[-1]
    trials.append(t)
    if best is None or t.score < best[0]:
        best = t.score, {k: v.numpy().copy() for k, v in net.state_dict().items()}
