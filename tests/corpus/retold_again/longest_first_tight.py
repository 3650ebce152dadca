# device: virtual:62MiB
import torch
from torch import nn

net = nn.Sequential(nn.Conv1d(4, 32, 5), nn.ReLU(), nn.Conv1d(32, 4, 5))
opt = torch.optim.SGD(net.parameters(), lr=0.01)
for n in sorted(torch.randint(400, 9000, (90,), generator=torch.Generator().manual_seed(0)).tolist(), reverse=True):
    loss = net(torch.randn(8, 4, n)).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
