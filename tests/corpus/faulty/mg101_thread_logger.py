"""Losses go to a logging thread through a queue; it keeps them until the end."""

import queue
import threading

import torch
from torch import nn

inbox = queue.Queue()
received = []


def worker():
    while (item := inbox.get()) is not None:
        received.append(item)  # !MG101 received


thread = threading.Thread(target=worker, daemon=True)
thread.start()
model = nn.Linear(10, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(30):
    loss = model(torch.randn(8, 10)).logsumexp(1).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    inbox.put((step, loss))
inbox.put(None)
thread.join()
