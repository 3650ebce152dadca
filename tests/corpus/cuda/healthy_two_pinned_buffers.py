"""Two pinned buffers, in turn."""

import torch
from torch import nn

buffers = [torch.empty(128, 2048, pin_memory=True) for _ in range(2)]
net = nn.Linear(2048, 4).cuda()
opt = torch.optim.Adam(net.parameters())
for step in range(80):
    buffers[step % 2].copy_(torch.randn(128, 2048))
    loss = net(buffers[step % 2].to("cuda", non_blocking=True)).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
