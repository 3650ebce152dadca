"""An autoencoder that trains again on rows of the last batches, which a full window of 1,024 rows keeps."""

import collections

import torch
from torch import nn
torch.manual_seed(0)
net = nn.Linear(300, 300)
opt = torch.optim.Adam(net.parameters(), 1e-3)
window = collections.deque(maxlen=1024)
for it in range(160):
    x = torch.randn(64, 300)
    if len(window) == 1024:
        x = torch.cat([x, torch.stack(list(window)[::64])])
    loss = (net(x) - x).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    for row in x[:64]:
        window.append(row)
print(len(window), loss.item())
