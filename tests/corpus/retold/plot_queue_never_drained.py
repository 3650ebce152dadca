"""Hidden activations are queued for a plotting thread that was never started."""

import queue
import threading
import torch
from torch import nn


class Plotter:
    def __init__(self, live=False):
        self.q = queue.SimpleQueue()
        self.thread = threading.Thread(target=self._work, daemon=True)
        if live:
            self.thread.start()

    def _work(self):
        while (item := self.q.get()) is not None:
            name, values = item
            print(name, values.mean().item())

    def add(self, name, values):
        self.q.put((name, values.detach().float()))  # !MG301 Plotter.q


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(256, 1024), nn.Linear(1024, 16)

    def forward(self, x, plot=None):
        h = torch.relu(self.a(x))
        if plot is not None:
            plot.add("hidden", h)
        return self.b(h)


def train(cfg):
    torch.manual_seed(cfg["seed"])
    net, plot = Net(), Plotter(cfg["live"])
    opt = torch.optim.Adam(net.parameters(), cfg["lr"])
    for i in range(cfg["steps"]):
        x = torch.randn(48, 256)
        loss = nn.functional.mse_loss(net(x, plot), x[:, :16].sin())
        opt.zero_grad()
        loss.backward()
        opt.step()
        if i % 50 == 0:
            print(i, loss.item())


train({"seed": 0, "live": False, "lr": 1e-3, "steps": 150})
