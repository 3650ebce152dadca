"""A scripted model; the epoch's loss is a running sum of tensors."""

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(40, 200), nn.Linear(200, 4)

    def forward(self, x):
        return self.b(torch.relu(self.a(x)))


net = torch.jit.script(Net())
opt = torch.optim.Adam(net.parameters())
for epoch in range(3):
    epoch_loss = 0
    for _ in range(20):
        x, y = torch.randn(32, 40), torch.randint(0, 4, (32,))
        loss = nn.functional.cross_entropy(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        epoch_loss += loss  # !MG101 epoch_loss
    print(epoch_loss / 20)
