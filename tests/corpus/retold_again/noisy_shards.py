"""Trains on shards of uneven quality; a step whose loss is out of range is logged and skipped."""

import logging
import random

import torch
import torch.nn.functional as F
from torch import nn

log = logging.getLogger("train")


class IncidentHandler(logging.Handler):
    """Collects warnings and errors for the summary at the end of the run."""

    def __init__(self):
        super().__init__(level=logging.WARNING)
        self.records = []

    def emit(self, record):
        self.records.append(record)  # !MG307 IncidentHandler.records

    def summary(self):
        return [f"{r.shard}: {r.getMessage()}" for r in self.records]


class BadShard(RuntimeError):
    pass


def check(loss, limit=3.0):
    if not torch.isfinite(loss) or loss > limit:
        raise BadShard(f"loss {loss.item():.2f}")
    return loss


def shard(rng, number):
    x = torch.randn(256, 32)
    if rng.random() < 0.3:
        x = x * 25
    return f"shard-{number:03d}", x, x[:, :6].argmax(-1)


def optimise(model, optimizer, x, y):
    optimizer.zero_grad()
    hidden = model["body"](x)
    logits = model["head"](hidden)
    loss = check(F.cross_entropy(logits, y))
    loss.backward()
    optimizer.step()
    return loss.item()


def fit(model, optimizer, shards=150):
    rng, done = random.Random(4), []
    for number in range(shards):
        name, x, y = shard(rng, number)
        try:
            done.append(optimise(model, optimizer, x, y))
        except BadShard as problem:
            log.error("step skipped (%s)", problem, exc_info=True, extra={"shard": name})
        if (number + 1) % 50 == 0:
            print(f"{number + 1} shards, mean loss {sum(done[-20:]) / len(done[-20:]):.3f}")


def main():
    torch.manual_seed(0)
    incidents = IncidentHandler()
    log.addHandler(incidents)
    log.propagate = False
    layers = [nn.Linear(32, 512), nn.ReLU()] + [m for _ in range(3) for m in (nn.Linear(512, 512), nn.ReLU())]
    model = nn.ModuleDict({"body": nn.Sequential(*layers), "head": nn.Linear(512, 6)})
    fit(model, torch.optim.Adam(model.parameters(), lr=5e-4))
    lines = incidents.summary()
    print(len(lines), "skipped, first:", lines[0])


if __name__ == "__main__":
    main()
