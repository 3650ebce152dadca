"""Keras-like: History callback of floats, best weights by state_dict on CPU, a progress object with a running mean on device."""

import torch
from torch import nn


class Callback:
    def set_model(self, m):
        self.model = m

    def on_batch_end(self, logs):
        pass

    def on_epoch_end(self, logs):
        pass


class History(Callback):
    def __init__(self):
        self.history = {}

    def on_epoch_end(self, logs):
        for k, v in logs.items():
            self.history.setdefault(k, []).append(v)


class Best(Callback):
    best, weights = float("inf"), None

    def on_epoch_end(self, logs):
        if logs["loss"] < self.best:
            self.best, self.weights = (
                logs["loss"],
                {k: v.detach().to("cpu", copy=True) for k, v in self.model.state_dict().items()},
            )


class Running(Callback):
    def __init__(self):
        self.mean, self.n = torch.zeros(()), 0

    def on_batch_end(self, logs):
        self.n += 1
        self.mean += (logs["loss"].detach() - self.mean) / self.n


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.f = nn.Sequential(nn.Linear(30, 120), nn.ReLU(), nn.Linear(120, 1))

    def forward(self, x):
        return self.f(x)

    def fit(self, data, epochs, callbacks):
        opt = torch.optim.Adam(self.parameters())
        [c.set_model(self) for c in callbacks]
        for e in range(epochs):
            total = 0.0
            for x, y in data:
                loss = nn.functional.mse_loss(self(x), y)
                opt.zero_grad()
                loss.backward()
                opt.step()
                [c.on_batch_end({"loss": loss}) for c in callbacks]
                total += loss.item()
            [c.on_epoch_end({"loss": total / len(data)}) for c in callbacks]


data = [(x, x.sum(1, keepdim=True)) for x in (torch.randn(32, 30) for _ in range(20))]
Model().fit(data, 5, [History(), Best(), Running()])
