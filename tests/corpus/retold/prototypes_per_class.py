"""Running class prototypes in a list, for a plot of distances; the loss does not use them."""

import torch
from torch import nn


class ProtoTracker:
    def __init__(self, classes, dim, momentum=0.9):
        self.momentum = momentum
        self.prototypes = [torch.zeros(dim) for _ in range(classes)]

    def update(self, z, y):
        for c in y.unique().tolist():
            new = z[y == c].mean(0)
            self.prototypes[c] = self.momentum * self.prototypes[c] + (1 - self.momentum) * new  # !MG101 ProtoTracker.prototypes

    def spread(self):
        return torch.stack(self.prototypes).std(0).mean().item()


encoder, classifier = nn.Linear(24, 16), nn.Linear(16, 3)
tracker = ProtoTracker(3, 16)
opt = torch.optim.Adam([*encoder.parameters(), *classifier.parameters()])
for step in range(40):
    x, y = torch.randn(30, 24), torch.randint(3, (30,))
    z = torch.relu(encoder(x))
    loss = nn.functional.cross_entropy(classifier(z), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    tracker.update(z, y)
    tracker.spread()
