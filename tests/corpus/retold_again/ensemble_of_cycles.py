import argparse
import copy
from dataclasses import dataclass, field

import torch
from torch import nn


@dataclass
class RunState:
    step: int = 0
    best: float = float("inf")
    history: list = field(default_factory=list)
    ensemble: list = field(default_factory=list)


class Forecaster(nn.Module):
    """N-BEATS flavoured stack for hourly load."""

    def __init__(self, lookback=168, horizon=24, width=320, blocks=3):
        super().__init__()
        self.blocks = nn.ModuleList()
        for _ in range(blocks):
            self.blocks.append(
                nn.Sequential(
                    nn.Linear(lookback, width),
                    nn.ReLU(),
                    nn.Linear(width, width),
                    nn.ReLU(),
                    nn.Linear(width, lookback + horizon),
                )
            )
        self.lookback = lookback

    def forward(self, x):
        forecast = 0
        for block in self.blocks:
            back, fore = block(x).split([self.lookback, 24], dim=1)
            x = x - back
            forecast = forecast + fore
        return forecast


def sample(bs, device):
    t = torch.rand(bs, 1, device=device) * 24 + torch.arange(192, device=device)
    series = torch.sin(t / 24 * 6.283) + 0.1 * torch.randn_like(t)
    return series[:, :168], series[:, 168:]


def main(args):
    torch.manual_seed(args.seed)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = Forecaster().to(device)
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    state = RunState()
    for cycle in range(args.cycles):
        model.train()
        for _ in range(args.steps):
            x, y = sample(64, device)
            loss = nn.functional.l1_loss(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            state.step += 1
        model.eval()
        with torch.no_grad():
            x, y = sample(128, device)
            val = nn.functional.l1_loss(model(x), y).item()
        state.history.append(val)
        state.best = min(state.best, val)
        # snapshot ensemble: one member per cycle
        state.ensemble.append(copy.deepcopy(model.state_dict()))  # !MG308 RunState.ensemble
        print(f"cycle {cycle} val {val:.4f} members {len(state.ensemble)}")
    print("best", state.best)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--cycles", type=int, default=10)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    main(parser.parse_args())
