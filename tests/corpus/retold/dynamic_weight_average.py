"""Dynamic weight averaging over two tasks (MTAN): the table of average costs is made of tensors."""

import torch
from torch import nn


class MTAN(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(16, 32), nn.ReLU())
        self.seg, self.depth = nn.Linear(32, 5), nn.Linear(32, 1)

    def forward(self, x):
        h = self.trunk(x)
        return self.seg(h), self.depth(h)


class Trainer:
    def __init__(self, model, epochs=3, batches=12):
        self.model, self.epochs, self.batches = model, epochs, batches
        self.optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        self.avg_cost = [[0.0, 0.0] for _ in range(epochs)]

    def weights(self, epoch):
        if epoch < 2:
            return 1.0, 1.0
        ratio = [float(self.avg_cost[epoch - 1][t] / self.avg_cost[epoch - 2][t]) for t in range(2)]
        return 2 * ratio[0] / sum(ratio), 2 * ratio[1] / sum(ratio)

    def fit(self):
        for epoch in range(self.epochs):
            w = self.weights(epoch)
            for _ in range(self.batches):
                x, s, d = torch.randn(16, 16), torch.randint(5, (16,)), torch.randn(16, 1)
                seg, depth = self.model(x)
                losses = [nn.functional.cross_entropy(seg, s), nn.functional.l1_loss(depth, d)]
                self.optimizer.zero_grad()
                (w[0] * losses[0] + w[1] * losses[1]).backward()
                self.optimizer.step()
                for t in range(2):
                    self.avg_cost[epoch][t] += losses[t] / self.batches  # !MG101 Trainer.avg_cost


Trainer(MTAN()).fit()
