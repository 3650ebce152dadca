"""An event system: a table of functions; one of them keeps the state of each batch."""

import collections
import types

import torch
import torch.nn as nn

HANDLERS = collections.defaultdict(list)
records = []


def on(event):
    def register(function):
        HANDLERS[event].append(function)
        return function

    return register


def fire(event, **info):
    for handler in HANDLERS[event]:
        handler(types.SimpleNamespace(**info))


@on("batch_end")
def remember(info):
    records.append((info.step, info.loss))  # !MG101 records


@on("epoch_end")
def report(info):
    print("epoch", info.epoch, sum(l.item() for _, l in records[-20:]) / 20)


def train(model, epochs=2):
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    for epoch in range(epochs):
        for step in range(20):
            x = torch.randn(16, 24)
            loss = (model(x) - x.sum(1, keepdim=True)).pow(2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            fire("batch_end", step=step, loss=loss)
        fire("epoch_end", epoch=epoch)


train(nn.Sequential(nn.Linear(24, 64), nn.SiLU(), nn.Linear(64, 1)))
