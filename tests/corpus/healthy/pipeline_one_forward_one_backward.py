# A pipeline's schedule: four forwards ahead, then one forward and one backward in turn.
from collections import deque

import torch
from torch import nn

torch.manual_seed(0)
stage = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 2000))
optimizer = torch.optim.AdamW(stage.parameters())


def forward_step(store):
    output = stage(torch.randn(96, 64))
    store.append(output)
    return output


def backward_step(store, losses):
    output = store.popleft()
    loss = output.square().mean()
    loss.backward()
    losses.append(loss.detach())


for step in range(4):
    store, losses, warmup, total = deque(), [], 4, 12
    for _ in range(warmup):
        forward_step(store)
    for _ in range(total - warmup):
        forward_step(store)
        backward_step(store, losses)
    while store:
        backward_step(store, losses)
    optimizer.step()
    optimizer.zero_grad()
    print(step, torch.stack(losses).mean().item())
