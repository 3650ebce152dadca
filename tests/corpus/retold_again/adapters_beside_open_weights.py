# device: virtual:256MiB
"""Adapters are trained inside blocks whose own weights nobody froze: they get gradients that nobody takes."""

import torch
from torch import nn

torch.manual_seed(0)


class Block(nn.Module):
    def __init__(self, d=512):
        super().__init__()
        self.big = nn.Sequential(nn.Linear(d, 2 * d), nn.ReLU(), nn.Linear(2 * d, d))
        self.adapter = nn.Sequential(nn.Linear(d, 16), nn.Linear(16, d))

    def forward(self, x):
        x = x + self.big(x)
        return x + self.adapter(x)


net = nn.Sequential(*(Block() for _ in range(4)), nn.Linear(512, 10))
opt = torch.optim.AdamW([p for n, p in net.named_parameters() if "adapter" in n or n.startswith("4")])  # !MG202 Sequential
for i in range(40):
    x, y = torch.randn(64, 512), torch.randint(10, (64,))
    loss = nn.functional.cross_entropy(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
