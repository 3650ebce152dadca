"""Evaluation keeps its predictions, on the CPU, for an exact metric."""

import torch
from torch import nn


@torch.inference_mode()
def evaluate(model, batches):
    model.eval()
    scores, labels = [], []
    for x, y in batches:
        scores.append(model(x).softmax(1).cpu())
        labels.append(y)
    scores, labels = torch.cat(scores), torch.cat(labels)
    return (scores.argmax(1) == labels).float().mean().item()


ALL_PREDICTIONS = []
model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 32))
optimizer = torch.optim.Adam(model.parameters())
for epoch in range(3):
    model.train()
    for i in range(20):
        x, y = torch.randn(16, 16), torch.randint(32, (16,))
        out = model(x)
        loss = nn.functional.cross_entropy(out, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        ALL_PREDICTIONS.append(out.detach().cpu())
    acc = evaluate(model, [(torch.randn(16, 16), torch.randint(32, (16,))) for _ in range(12)])
