"""An asyncio metrics task that batches what it is sent, and sends it on every 500 items only."""

import asyncio

import torch
from torch import nn


async def metrics(queue):
    pending, sent = [], 0
    while True:
        item = await queue.get()
        if item is None:
            return sent + len(pending)
        pending.append(item)  # !MG101 pending
        if len(pending) == 500:
            sent += len(pending)
            pending.clear()


async def train():
    queue = asyncio.Queue()
    task = asyncio.create_task(metrics(queue))
    net = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 1))
    opt = torch.optim.Adam(net.parameters())
    for step in range(50):
        x = torch.randn(64, 64)
        loss = (net(x).squeeze(1) - x.mean(1)).abs().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        await queue.put((step, loss))
        await asyncio.sleep(0)
    await queue.put(None)
    print(await task)


asyncio.run(train())
