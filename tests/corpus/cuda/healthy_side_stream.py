"""A prefetching stream, as in many loops: small batches recorded on the main stream."""

import torch
from torch import nn

side = torch.cuda.Stream()
net = nn.Linear(1024, 64).cuda()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(120):
    with torch.cuda.stream(side):
        x = torch.randn(256, 1024).cuda(non_blocking=True)
    torch.cuda.current_stream().wait_stream(side)
    x.record_stream(torch.cuda.current_stream())
    loss = net(x).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
