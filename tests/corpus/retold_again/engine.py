"""An engine with handlers that keep numbers, and one handler that keeps only the last output."""

from types import SimpleNamespace
import torch
from torch import nn

net = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 64))
opt = torch.optim.Adam(net.parameters())
state = SimpleNamespace(output=None, hist=[])


def process(x):
    opt.zero_grad()
    y = net(x)
    loss = (x - y).abs().mean()
    loss.backward()
    opt.step()
    return {"y": y, "loss": loss}


for _ in range(100):
    state.output = process(torch.randn(32, 64))
    state.hist.append(float(state.output["loss"]))
