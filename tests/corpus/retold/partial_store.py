"""Callbacks as functools.partial over a shared store, the way small home-made trainers do it."""

from functools import partial

import torch
from torch import nn


def on_step_end(store, key, *, outputs, **_):
    store.setdefault(key, []).append(outputs["loss"])  # !MG101 store


def print_every(n, *, step, outputs, **_):
    if step % n == 0:
        print(step, outputs["loss"].item())


class Runner:
    def __init__(self, model, callbacks):
        self.model, self.callbacks = model, callbacks
        self.opt = torch.optim.SGD(model.parameters(), 1e-2)

    def emit(self, **state):
        for cb in self.callbacks:
            cb(**state)

    def run(self, data):
        for step, (x, y) in enumerate(data):
            self.opt.zero_grad()
            pred = self.model(x)
            loss = nn.functional.mse_loss(pred, y)
            loss.backward()
            self.opt.step()
            self.emit(step=step, outputs={"loss": loss, "pred": pred})


def data(n):
    for _ in range(n):
        x = torch.randn(64, 100)
        yield x, x.sum(1, keepdim=True)


def main():
    model = nn.Sequential(nn.Linear(100, 300), nn.ReLU(), nn.Linear(300, 1))
    Runner(model, [partial(on_step_end, {}, "train"), partial(print_every, 10)]).run(data(40))


main()
