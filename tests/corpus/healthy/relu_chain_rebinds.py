# device: virtual:128MiB
import torch
from torch import nn
import torch.nn.functional as F


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Conv2d(8, 8, 3, padding=1) for _ in range(6)])

    def forward(self, x):
        for layer in self.layers:
            x = F.relu(layer(x))
            x = x + 0.1
        return x


net = Net()
opt = torch.optim.SGD(net.parameters(), lr=0.01)
for _ in range(20):
    x = torch.randn(4, 8, 96, 96)
    x = (x - x.mean()) / x.std()
    loss = net(x).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
