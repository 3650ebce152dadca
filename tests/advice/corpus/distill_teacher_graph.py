# device: virtual:48MiB
# runs out of memory
# cause: validation-graph
"""A teacher that is not trained builds a graph of its own for each batch."""

import torch
from torch import nn


def mlp(width, depth):
    return nn.Sequential(
        nn.Linear(64, width),
        nn.ReLU(),
        *[m for _ in range(depth) for m in (nn.Linear(width, width), nn.ReLU())],
        nn.Linear(width, 10),
    )


teacher, student = mlp(512, 6), mlp(64, 2)
teacher.eval()
opt = torch.optim.Adam(student.parameters(), 1e-3)
for step in range(10):
    x = torch.randn(2048, 64)
    target = teacher(x).softmax(-1)
    loss = nn.functional.kl_div(student(x).log_softmax(-1), target.detach(), reduction="batchmean")
    opt.zero_grad()
    loss.backward()
    opt.step()
