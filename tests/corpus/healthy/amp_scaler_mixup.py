"""Mixed precision with a GradScaler, mixup, label smoothing, and gradient accumulation; zero_grad fills with zeros."""

import torch
from torch import nn

model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
scaler = torch.amp.GradScaler("cpu", enabled=False)
criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
for step in range(32):
    x, y = torch.rand(8, 3, 12, 12), torch.randint(10, (8,))
    lam, perm = float(torch.distributions.Beta(0.4, 0.4).sample()), torch.randperm(8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = model(lam * x + (1 - lam) * x[perm])
        loss = (lam * criterion(out, y) + (1 - lam) * criterion(out, y[perm])) / 2
    scaler.scale(loss).backward()
    if step % 2:
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=False)
