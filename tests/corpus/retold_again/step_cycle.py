# device: virtual:512MiB
"""One object per step; its lazily computed metric is a lambda over self, so that only the collector frees it."""

import gc

import torch
from torch import nn


class StepResult:
    def __init__(self, logits, target, loss):
        self.logits, self.target, self.loss = logits, target, loss
        self.accuracy = lambda: (self.logits.argmax(1) == self.target).float().mean()  # !MG306 StepResult.accuracy


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1), nn.ReLU()
        )
        self.fc = nn.Conv2d(16, 10, 1)

    def forward(self, x):
        return self.fc(self.features(x))


def step(model, opt, x, y):
    logits = model(x)
    loss = nn.functional.cross_entropy(logits, y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    return StepResult(logits, y, loss)


model = Classifier()
opt = torch.optim.Adam(model.parameters())
for i in range(60):
    result = step(model, opt, torch.randn(4, 3, 64, 64), torch.randint(0, 10, (4, 64, 64)))
    if i % 20 == 0:
        print(i, result.accuracy().item())
        gc.collect()
