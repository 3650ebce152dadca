"""A small stand-in for an experiment tracker, fed with tensors."""

import time

import torch
from torch import nn


class Run:
    def __init__(self, project):
        self.project = project
        self._rows = []

    def log(self, metrics, step=None):
        row = {"_step": step if step is not None else len(self._rows), "_time": time.time()}
        row.update(metrics)
        self._rows.append(row)  # !MG101 Run._rows

    def finish(self):
        return [{k: float(v) for k, v in row.items()} for row in self._rows]


run = Run("demo")
model = nn.Sequential(nn.Embedding(100, 16), nn.Flatten(), nn.Linear(16 * 8, 100))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(36):
    tokens = torch.randint(100, (8, 9))
    loss = nn.functional.cross_entropy(model(tokens[:, :-1]), tokens[:, -1])
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    run.log({"train/loss": loss, "train/ppl": loss.detach().exp()}, step=step)
print(run.finish()[-1])
