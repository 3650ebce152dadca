import copy

import torch
from torch import nn
from torch.nn import functional as F

model = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 5))
average = copy.deepcopy(model).requires_grad_(False)
optimizer = torch.optim.AdamW(model.parameters())
best, best_loss, recent = None, float("inf"), []
for step in range(120):
    x, y = torch.randn(8, 32), torch.randint(0, 5, (8,))
    loss = F.cross_entropy(model(x), y) / 4
    loss.backward()
    recent = (recent + [loss.item()])[-20:]
    if step % 4 == 3:
        optimizer.step()
        optimizer.zero_grad()
        with torch.no_grad():
            for ema, p in zip(average.parameters(), model.parameters()):
                ema.lerp_(p, 0.1)
    if step % 40 == 39:
        average.eval()
        with torch.no_grad():
            scores = [F.cross_entropy(average(torch.randn(8, 32)), torch.randint(0, 5, (8,))) for _ in range(5)]
        mean = torch.stack(scores).mean().item()
        if mean < best_loss:
            best_loss, best = mean, {k: v.detach().cpu().clone() for k, v in average.state_dict().items()}
