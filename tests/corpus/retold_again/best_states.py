# device: virtual:256MiB
"""top-k checkpoints on a heap in device memory, but k was forgotten."""

import heapq
import itertools

import torch
from torch import nn


class CheckpointHeap:
    def __init__(self):
        self.heap, self.tie = [], itertools.count()

    def push(self, score, model):
        state = {k: v.clone() for k, v in model.state_dict().items()}
        heapq.heappush(self.heap, (score, next(self.tie), state))  # !MG308 CheckpointHeap.heap


net = nn.Sequential(nn.Linear(300, 600), nn.ReLU(), nn.Linear(600, 600), nn.ReLU(), nn.Linear(600, 3))
opt, keep = torch.optim.SGD(net.parameters(), 0.05), CheckpointHeap()
for epoch in range(14):
    for _ in range(5):
        x = torch.randn(64, 300)
        loss = nn.functional.cross_entropy(net(x), x[:, :3].argmax(1))
        opt.zero_grad()
        loss.backward()
        opt.step()
    keep.push(-loss.item(), net)
print(len(keep.heap))
