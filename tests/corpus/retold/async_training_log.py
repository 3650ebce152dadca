"""Training inside a coroutine; a dashboard task would read the log."""

import asyncio

import torch
from torch import nn


class Dashboard:
    def __init__(self):
        self.points = []

    async def push(self, point):
        self.points.append(point)  # !MG101 Dashboard.points
        await asyncio.sleep(0)


async def train(dashboard, steps=32):
    net = nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 1))
    opt = torch.optim.Adam(net.parameters())
    for step in range(steps):
        x = torch.randn(16, 10)
        loss = (net(x).squeeze(1) - x.mean(1)).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        await dashboard.push((step, loss))


asyncio.run(train(Dashboard()))
