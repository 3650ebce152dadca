"""A node classifier: train() and test() as methods of a runner, masks over one graph."""

import torch
import torch.nn.functional as F
from torch import nn


class GCN(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(24, 48), nn.Linear(48, 4)

    def forward(self, x, adj):
        x = F.dropout(F.relu(adj @ self.a(x)), 0.5, self.training)
        return F.log_softmax(adj @ self.b(x), 1)


class Runner:
    def __init__(self):
        self.x, self.y = torch.randn(200, 24), torch.randint(4, (200,))
        self.adj = (torch.rand(200, 200) < 0.05).float().softmax(1)
        self.mask = torch.rand(200) < 0.5
        self.model = GCN()
        self.opt = torch.optim.Adam(self.model.parameters(), lr=0.01)

    def train(self):
        self.model.train()
        self.opt.zero_grad()
        F.nll_loss(self.model(self.x, self.adj)[self.mask], self.y[self.mask]).backward()
        self.opt.step()

    def test(self):
        self.model.eval()
        pred = self.model(self.x, self.adj).argmax(1)  # !MG201 GCN
        return (pred == self.y)[~self.mask].float().mean().item()


runner = Runner()
for epoch in range(20):
    runner.train()
    runner.test()
