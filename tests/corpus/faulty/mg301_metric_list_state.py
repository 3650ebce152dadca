"""An exact AUROC over the whole training run: the metric keeps every prediction and is never reset."""

import torch
from torch import nn
from torchmetrics.classification import MulticlassAUROC

model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 32))
optimizer = torch.optim.Adam(model.parameters())
auroc = MulticlassAUROC(32, thresholds=None)
for step in range(40):
    x, y = torch.randn(64, 16), torch.randint(32, (64,))
    logits = model(x)
    loss = nn.functional.cross_entropy(logits, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    auroc.update(logits.detach().softmax(1), y)  # !MG301 auroc
