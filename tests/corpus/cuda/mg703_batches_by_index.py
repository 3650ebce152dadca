"""Each batch is copied to pinned memory of its own, which a dictionary keeps."""

import torch
from torch import nn


class Stager:
    def __init__(self):
        self.buffers = {}

    def stage(self, step, x):
        host = torch.empty(x.shape, pin_memory=True)
        host.copy_(x)
        self.buffers[step] = host  # !MG703 Stager.buffers
        return host.to("cuda", non_blocking=True)


stager = Stager()
net = nn.Linear(2048, 4).cuda()
opt = torch.optim.Adam(net.parameters())
for step in range(60):
    loss = net(stager.stage(step, torch.randn(128, 2048))).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
