"""The model goes to the rank's device, the negatives with a bare .cuda() to the first."""

import os

import torch
from torch import nn

os.environ.update(LOCAL_RANK="1")
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
net = nn.Linear(512, 512).to(device)
negatives = torch.randn(20_000, 512).cuda()  # !MG602 cuda:0
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(30):
    x = torch.randn(64, 512, device=device)
    loss = net(x).square().mean() + negatives[:64].to(device).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
