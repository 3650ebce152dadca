"""Early stopping on a smoothed training loss: min() over a list of tensors with history."""

import torch
from torch import nn


class EarlyStopping:
    def __init__(self, patience=50):
        self.patience, self.history, self.bad = patience, [], 0

    def __call__(self, loss):
        if self.history and loss > min(self.history):
            self.bad += 1
        else:
            self.bad = 0
        self.history.append(loss)  # !MG101 EarlyStopping.history
        return self.bad >= self.patience


def fit(model, stop):
    optimizer = torch.optim.NAdam(model.parameters())
    for epoch in range(30):
        x = torch.randn(20, 6)
        loss = nn.functional.huber_loss(model(x), x[:, :2])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if stop(loss):
            break


fit(nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 2)), EarlyStopping())
