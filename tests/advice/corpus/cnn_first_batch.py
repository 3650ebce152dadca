# device: virtual:48MiB
# runs out of memory
# cause: size
"""Images: the very first batch is too large."""

import torch
from torch import nn

torch.manual_seed(0)
BATCH = 160


def block(i, o):
    return nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU(), nn.MaxPool2d(2))


net = nn.Sequential(block(3, 16), block(16, 32), block(32, 64), nn.Flatten(), nn.Linear(64 * 16, 10))
opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
for _ in range(4):
    x, y = torch.randn(BATCH, 3, 32, 32), torch.randint(0, 10, (BATCH,))
    loss = nn.functional.cross_entropy(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
