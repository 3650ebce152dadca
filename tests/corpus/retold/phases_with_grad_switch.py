"""The transfer-learning loop as it should be."""

import torch
import torch.nn as nn

model = nn.Sequential(nn.Linear(12, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = {p: [(torch.randn(16, 12), torch.randint(3, (16,))) for _ in range(10)] for p in ("train", "val")}
for epoch in range(3):
    for phase in ("train", "val"):
        model.train(phase == "train")
        for x, y in data[phase]:
            optimizer.zero_grad()
            with torch.set_grad_enabled(phase == "train"):
                loss = nn.functional.cross_entropy(model(x), y)
                if phase == "train":
                    loss.backward()
                    optimizer.step()
