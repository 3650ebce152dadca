# device: virtual:64MiB
import torch
from torch import nn

model = nn.Linear(64, 4096)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
predictions = []
for step in range(60):
    logits = model(torch.randn(32, 64))
    loss = logits.logsumexp(1).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    predictions.append(logits.detach())  # !MG301 predictions
