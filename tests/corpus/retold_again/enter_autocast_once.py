"""Mixed precision switched on once, at the top of the program, for the whole training."""

import torch
import torch.nn as nn

amp = torch.autocast("cpu", dtype=torch.bfloat16)
amp.__enter__()  # !MG311 -

net = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for epoch in range(3):
    for it in range(12):
        x, y = torch.randn(32, 128), torch.randint(10, (32,))
        loss = nn.functional.cross_entropy(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(epoch, loss.item())

amp.__exit__(None, None, None)
