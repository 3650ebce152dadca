"""A trainer class whose evaluate() only switches to eval mode and gathers the predictions as numpy."""

import numpy as np
import torch
from torch import nn


class Trainer:
    def __init__(self, net, lr=1e-3):
        self.net = net
        self.optim = torch.optim.Adam(net.parameters(), lr=lr)
        self.crit = nn.MSELoss()

    def partial_fit(self, x, y):
        self.net.train()
        self.optim.zero_grad()
        loss = self.crit(self.net(x), y)
        loss.backward()
        self.optim.step()
        return float(loss)

    def predict(self, loader):
        self.net.eval()
        out = []
        for x, _ in loader:
            out.append(self.net(x).detach().cpu().numpy())  # !MG201 Sequential
        return np.concatenate(out)

    def fit(self, loader, valid, epochs):
        for _ in range(epochs):
            for x, y in loader:
                self.partial_fit(x, y)
            self.predict(valid)


loader = [(torch.randn(16, 8), torch.randn(16, 2)) for _ in range(10)]
Trainer(nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 2))).fit(loader, loader[:6], 3)
