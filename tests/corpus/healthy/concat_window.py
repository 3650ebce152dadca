# device: virtual:32MiB
import torch
from torch import nn

embed = nn.Linear(64, 64)
opt = torch.optim.SGD(embed.parameters(), lr=0.1)
bank = torch.empty(0, 64)
for step in range(320):
    x = torch.randn(48, 64)
    z = embed(x)
    loss = (z - x).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    bank = torch.cat([bank, z.detach()])[-2048:]
