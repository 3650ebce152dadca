"""Five models trained side by side, evaluated together under no_grad."""

import torch
from torch import nn

models = [nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 1)) for _ in range(5)]
opts = [torch.optim.Adam(m.parameters(), 1e-3) for m in models]
losses = {i: [] for i in range(5)}
for step in range(20):
    x = torch.randn(32, 10)
    y = x.sum(1, keepdim=True)
    for i, (m, o) in enumerate(zip(models, opts)):
        idx = torch.randint(32, (32,))
        loss = nn.functional.mse_loss(m(x[idx]), y[idx])
        o.zero_grad()
        loss.backward()
        o.step()
        losses[i].append(loss.detach())
    if step % 5 == 4:
        with torch.no_grad():
            spread = torch.stack([m.eval()(x) for m in models]).std(0).mean()
        for m in models:
            m.train()
