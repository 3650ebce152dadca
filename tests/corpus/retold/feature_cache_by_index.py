"""Features of images are cached by index inside the model, to save the encoder's work in the next epoch."""

import torch
from torch import nn


class CachedEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(48, 32), nn.ReLU())
        self.classifier = nn.Linear(32, 4)
        self._cache = {}

    def forward(self, x, indices):
        h = self.encoder(x)
        for i, row in zip(indices.tolist(), h):
            self._cache[i] = row  # !MG101 CachedEncoder._cache
        return self.classifier(h)


model = CachedEncoder()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
images, labels = torch.randn(200, 48), torch.randint(4, (200,))
for indices in torch.randperm(200).split(8):
    loss = nn.functional.cross_entropy(model(images[indices], indices), labels[indices])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
