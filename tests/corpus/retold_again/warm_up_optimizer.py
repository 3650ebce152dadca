# device: virtual:256MiB
"""A warm-up with an optimizer of its own, whose states stay through the training that follows."""

import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 10))
warm = torch.optim.Adam(net.parameters(), 1e-3)  # !MG313 warm


def run(opt, n):
    for i in range(n):
        x, y = torch.randn(64, 512), torch.randint(10, (64,))
        loss = nn.functional.cross_entropy(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()


run(warm, 20)
main = torch.optim.AdamW(net.parameters(), 1e-4)
run(main, 60)
