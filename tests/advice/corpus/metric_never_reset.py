# device: virtual:48MiB
# runs out of memory
# cause: leak
"""A metric keeps all predictions, epoch after epoch: its reset() is never called."""

import torch
from torch import nn


class Correlation:
    def __init__(self):
        self.preds, self.targets = [], []

    def update(self, preds, target):
        self.preds.append(preds.detach())
        self.targets.append(target)

    def compute(self):
        return torch.corrcoef(torch.stack([torch.cat(self.preds).mean(1), torch.cat(self.targets).mean(1)]))[0, 1]

    def reset(self):
        self.preds, self.targets = [], []


model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64))
opt = torch.optim.Adam(model.parameters())
metric = Correlation()
data = [torch.randn(256, 64) for _ in range(30)]
for epoch in range(14):
    model.train()
    for x in data:
        loss = (model(x) - x).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    model.eval()
    with torch.no_grad():
        for x in data:
            metric.update(model(x), x.clone())
    print(epoch, float(metric.compute()))
