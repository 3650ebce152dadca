"""Random hyper-parameter search for a tabular MLP; diverging trials are noted and skipped."""

import math
import random

import torch
from torch import nn


class Diverged(RuntimeError):
    pass


class TabularMLP(nn.Module):
    def __init__(self, features, width, depth, dropout):
        super().__init__()
        layers, d = [], features
        for _ in range(depth):
            layers += [nn.Linear(d, width), nn.ReLU(), nn.Dropout(dropout)]
            d = width
        self.net = nn.Sequential(*layers, nn.Linear(d, 1))

    def forward(self, x):
        return self.net(x).squeeze(-1)


def sample_space(rng):
    return {
        "lr": 10 ** rng.uniform(-3, 1.5),
        "width": rng.choice([128, 256, 384]),
        "depth": rng.choice([2, 3, 4]),
        "dropout": rng.uniform(0, 0.4),
        "batch": rng.choice([64, 128]),
    }


def objective(params, train, val, epochs=2):
    x, y = train
    model = TabularMLP(x.size(1), params["width"], params["depth"], params["dropout"])
    optimizer = torch.optim.SGD(model.parameters(), lr=params["lr"], momentum=0.9)
    for _ in range(epochs):
        model.train()
        for idx in torch.randperm(len(x)).split(params["batch"]):
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x[idx]), y[idx])
            if not math.isfinite(loss.item()) or loss.item() > 1e4:
                raise Diverged(f"loss {loss.item():.3g} with lr {params['lr']:.3g}")
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 100.0)
            optimizer.step()
    model.eval()
    with torch.no_grad():
        return nn.functional.mse_loss(model(val[0]), val[1]).item()


class Study:
    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.trials = []
        self.failures = []

    def optimize(self, fn, n_trials):
        for number in range(n_trials):
            params = sample_space(self.rng)
            try:
                value = fn(params)
            except Diverged as err:
                self.failures.append((number, err))  # !MG307 Study.failures
                continue
            self.trials.append((value, params))

    @property
    def best(self):
        return min(self.trials, key=lambda t: t[0])


def make_table(n, features=64):
    x = torch.randn(n, features)
    y = x[:, 0] * x[:, 1] + x[:, 2].abs() + 0.1 * torch.randn(n)
    return x, y


if __name__ == "__main__":
    torch.manual_seed(0)
    train, val = make_table(1600), make_table(400)
    study = Study(seed=3)
    study.optimize(lambda p: objective(p, train, val), n_trials=40)
    value, params = study.best
    print(f"{len(study.trials)} trials finished, {len(study.failures)} diverged")
    for number, err in study.failures[:3]:
        print(f"  trial {number}: {err}")
    print(f"best val mse {value:.4f} with lr {params['lr']:.4f} width {params['width']} depth {params['depth']}")
