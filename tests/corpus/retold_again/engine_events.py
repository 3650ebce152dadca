"""An ignite-like engine: a handler attached by decorator collects engine.state.output, which still has its graph."""

from collections import defaultdict
from types import SimpleNamespace

import torch
from torch import nn


class Engine:
    def __init__(self, process):
        self._process, self._handlers = process, defaultdict(list)
        self.state = SimpleNamespace(iteration=0, output=None, metrics={})

    def on(self, event):
        def add(fn):
            self._handlers[event].append(fn)
            return fn

        return add

    def _fire(self, event):
        for fn in self._handlers[event]:
            fn(self)

    def run(self, data, max_epochs=1):
        for _ in range(max_epochs):
            for batch in data:
                self.state.iteration += 1
                self.state.output = self._process(self, batch)
                self._fire("iteration_completed")
            self._fire("epoch_completed")


model = nn.Sequential(nn.Linear(50, 200), nn.ReLU(), nn.Linear(200, 5))
opt = torch.optim.Adam(model.parameters())


def train_step(engine, batch):
    x, y = batch
    opt.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    opt.step()
    return {"loss": loss, "size": len(x)}


trainer = Engine(train_step)
collected = []


@trainer.on("iteration_completed")
def collect(engine):
    collected.append(engine.state.output)  # !MG101 collected


@trainer.on("epoch_completed")
def show(engine):
    print(sum(o["loss"].item() for o in collected) / len(collected))


data = [(torch.randn(32, 50), torch.randint(0, 5, (32,))) for _ in range(20)]
trainer.run(data, max_epochs=2)
