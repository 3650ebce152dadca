"""A checkpoint is loaded, used and dropped."""

import io

import torch
from torch import nn


def make():
    return nn.Sequential(nn.Embedding(400, 64), nn.Flatten(), nn.Linear(256, 8))


buffer = io.BytesIO()
torch.save({"state_dict": make().state_dict(), "epoch": 7}, buffer)
buffer.seek(0)
net = make()
checkpoint = torch.load(buffer)
net.load_state_dict(checkpoint["state_dict"])
epoch = checkpoint["epoch"]
del checkpoint
opt = torch.optim.Adam(net.parameters())
for _ in range(30):
    loss = nn.functional.cross_entropy(net(torch.randint(400, (16, 4))), torch.randint(8, (16,)))
    opt.zero_grad()
    loss.backward()
    opt.step()
