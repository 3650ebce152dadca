"""ImageNet-like meters and curves, all of them detached."""

import torch
from torch import nn


class AverageMeter:
    def __init__(self):
        self.sum, self.count, self.history = 0.0, 0, []

    def update(self, val, n=1):
        self.sum += val.detach() * n
        self.count += n
        self.history.append(val.detach())

    @property
    def avg(self):
        return self.sum / max(self.count, 1)


model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 8))
optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
best, best_state = float("inf"), None
curve = []
for epoch in range(3):
    model.train()
    meter = AverageMeter()
    for i in range(20):
        x, y = torch.randn(16, 32), torch.randint(0, 8, (16,))
        out = model(x)
        loss = nn.functional.cross_entropy(out, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        meter.update(loss, len(x))
        curve.append(loss.detach())
    model.eval()
    with torch.no_grad():
        losses = [nn.functional.cross_entropy(model(torch.randn(16, 32)), torch.randint(0, 8, (16,))) for _ in range(8)]
    val = torch.stack(losses).mean().item()
    if val < best:
        best, best_state = val, {k: v.detach().cpu().clone() for k, v in model.state_dict().items()}
    print(epoch, float(meter.avg), val)
model.load_state_dict(best_state)
