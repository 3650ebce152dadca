# device: cpu
import numpy as np
import torch
from torch import nn

net = nn.Linear(64, 256)
opt = torch.optim.SGD(net.parameters(), lr=0.01)
for epoch in range(5):
    kept = []
    for _ in range(80):
        out = net(torch.randn(128, 64))
        loss = out.square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        kept.append(out.detach().numpy())
    print(np.concatenate(kept).std())
