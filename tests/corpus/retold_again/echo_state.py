import math
from dataclasses import dataclass

import torch
import torch.nn as nn


@dataclass
class ESNConfig:
    n_in: int = 8
    n_res: int = 512
    n_out: int = 4
    leak: float = 0.3
    radius: float = 0.9
    streams: int = 256
    steps: int = 60
    lr: float = 3e-3


class Reservoir(nn.Module):
    """Leaky echo state reservoir; the readout alone is trained (see Jaeger 2001)."""

    def __init__(self, cfg: ESNConfig):
        super().__init__()
        self.cfg = cfg
        self.w_in = nn.Linear(cfg.n_in, cfg.n_res)
        self.w_res = nn.Linear(cfg.n_res, cfg.n_res, bias=False)
        nn.init.normal_(self.w_res.weight, std=cfg.radius / math.sqrt(cfg.n_res))
        self.state = torch.zeros(cfg.streams, cfg.n_res)

    def forward(self, u):
        pre = self.w_in(u) + self.w_res(self.state)
        self.state = (1 - self.cfg.leak) * self.state + self.cfg.leak * torch.tanh(pre)  # !MG102 Reservoir.state
        return self.state


class Forecaster(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.reservoir = Reservoir(cfg)
        self.readout = nn.Linear(cfg.n_res, cfg.n_out)

    def forward(self, u):
        s = self.reservoir(u)
        return self.readout(s.detach())  # gradients stop at the reservoir


def signal(cfg):
    """An endless sensor stream, one tick at a time."""
    phase = torch.rand(cfg.streams, cfg.n_in) * 6.28
    t = 0
    while True:
        now = torch.sin(phase + 0.1 * t)
        nxt = torch.sin(phase + 0.1 * (t + 5))[:, : cfg.n_out]
        yield now + 0.01 * torch.randn_like(now), nxt
        t += 1


def fit(cfg: ESNConfig):
    torch.manual_seed(0)
    model = Forecaster(cfg)
    opt = torch.optim.Adam(model.readout.parameters(), lr=cfg.lr)
    stream = signal(cfg)
    mse = None
    for tick in range(cfg.steps):
        u, target = next(stream)
        loss = nn.functional.mse_loss(model(u), target)
        opt.zero_grad()
        loss.backward()
        opt.step()
        mse = loss.item() if mse is None else 0.9 * mse + 0.1 * loss.item()
        if tick % 20 == 19:
            print(f"tick {tick + 1:4d}  ema mse {mse:.4f}")


if __name__ == "__main__":
    fit(ESNConfig())
