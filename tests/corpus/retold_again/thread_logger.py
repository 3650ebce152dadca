"""An asynchronous logger: a slow thread works through a queue of live losses and outputs."""

import queue
import threading

import torch
from torch import nn


class AsyncLogger(threading.Thread):
    def __init__(self):
        super().__init__(daemon=True)
        self.todo = queue.Queue()
        self.go = threading.Event()
        self.total = 0.0

    def run(self):
        self.go.wait()  # the network mount is slow to appear
        while (item := self.todo.get()) is not None:
            self.total += float(item["loss"].detach())

    def log(self, **item):
        self.todo.put(item)  # !MG101 AsyncLogger.todo


logger = AsyncLogger()
logger.start()
model = nn.Sequential(nn.Linear(200, 400), nn.Tanh(), nn.Linear(400, 200))
optimizer = torch.optim.Adam(model.parameters())
for i in range(40):
    x = torch.randn(32, 200)
    out = model(x)
    loss = (out - x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    logger.log(step=i, loss=loss, out=out)
logger.go.set()
logger.todo.put(None)
logger.join()
print(logger.total)
