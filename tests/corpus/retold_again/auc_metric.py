# device: virtual:512MiB
"""A hand-written AUC keeps all scores on the device; reset() exists, but nobody calls it."""

import torch
from torch import nn


class StreamingAUC:
    def __init__(self):
        self.reset()

    def reset(self):
        self.scores, self.labels = [], []

    def update(self, scores, labels):
        self.scores.append(scores.detach())  # !MG301 StreamingAUC.scores
        self.labels.append(labels)

    def compute(self):
        s, y = torch.cat(self.scores).flatten(), torch.cat(self.labels).flatten()
        order = s.argsort(descending=True)
        y = y[order].float()
        tps, fps = y.cumsum(0), (1 - y).cumsum(0)
        return torch.trapezoid(tps / tps[-1].clamp(min=1), fps / fps[-1].clamp(min=1))


seg = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 1, 3, padding=1))
opt = torch.optim.Adam(seg.parameters())
auc = StreamingAUC()
for epoch in range(5):
    seg.train()
    for _ in range(8):
        x, y = torch.randn(4, 1, 128, 128), torch.randint(0, 2, (4, 1, 128, 128))
        opt.zero_grad()
        nn.functional.binary_cross_entropy_with_logits(seg(x), y.float()).backward()
        opt.step()
    seg.eval()
    with torch.no_grad():
        for _ in range(12):
            x, y = torch.randn(4, 1, 128, 128), torch.randint(0, 2, (4, 1, 128, 128))
            auc.update(seg(x).sigmoid(), y)
    print(epoch, auc.compute().item())
