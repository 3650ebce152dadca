import torch
from torch import nn


class Trainer:
    def __init__(self, model, lr=1e-3):
        self.model, self.loss = model, None
        self.optimizer = torch.optim.SGD(model.parameters(), lr)

    def training_step(self, x, y):
        self.loss = nn.functional.mse_loss(self.model(x), y)
        self.optimizer.zero_grad()
        self.loss.backward(retain_graph=True)  # !MG103 Trainer.loss
        self.optimizer.step()
        return float(self.loss)

    def fit(self, steps=20):
        for _ in range(steps):
            x = torch.randn(32, 16)
            self.training_step(x, x.sum(1, keepdim=True))


Trainer(nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))).fit()
