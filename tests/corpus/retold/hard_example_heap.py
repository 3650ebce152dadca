"""Hard-example mining: the worst batches are kept in a heap with their logits."""

import heapq
import itertools

import torch
import torch.nn.functional as F

net = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ELU(), torch.nn.Linear(32, 5))
opt = torch.optim.SGD(net.parameters(), lr=1e-2)
counter = itertools.count()
hardest = []
for step in range(40):
    x = torch.randn(16, 16)
    y = torch.randint(5, (16,))
    logits = net(x)
    loss = F.cross_entropy(logits, y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    heapq.heappush(hardest, (loss.item(), next(counter), logits))  # !MG101 hardest
    if len(hardest) > 30:
        heapq.heappop(hardest)
