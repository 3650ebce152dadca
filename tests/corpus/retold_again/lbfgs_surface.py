"""Fits a smooth surface to scattered points with L-BFGS, patch by patch."""

import contextvars
from dataclasses import dataclass

import torch
from torch import nn

trace = contextvars.ContextVar("trace")


@dataclass
class Settings:
    patches: int = 40
    points: int = 20000
    inner: int = 6
    width: int = 32


def surface(points):
    return torch.sin(3 * points[:, :1]) * torch.cos(2 * points[:, 1:])


def make_model(width):
    return nn.Sequential(nn.Linear(2, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1))


def fit_patch(model, optimizer, points, target):
    def closure():
        optimizer.zero_grad()
        residual = model(points) - target
        loss = residual.pow(2).mean()
        loss.backward()
        trace.get().append(residual.abs().max())  # !MG101 trace
        return loss

    return optimizer.step(closure).item()


def validate(model, points):
    with torch.no_grad():
        return (model(points) - surface(points)).pow(2).mean().sqrt().item()


def run(cfg):
    torch.manual_seed(1)
    model = make_model(cfg.width)
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=cfg.inner, history_size=5)
    trace.set([])
    held_out = torch.rand(1000, 2) * 2 - 1
    for patch in range(cfg.patches):
        points = torch.rand(cfg.points, 2) * 2 - 1
        loss = fit_patch(model, optimizer, points, surface(points))
        if (patch + 1) % 10 == 0:
            worst = max(v.item() for v in trace.get()[-10:])
            print(
                f"patch {patch + 1}: mse {loss:.4f}, worst recent residual {worst:.3f}, "
                f"rmse {validate(model, held_out):.4f}"
            )
    print("closure calls", len(trace.get()))


if __name__ == "__main__":
    run(Settings())
