import torch
from torch import nn

net = nn.Linear(64, 8)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for epoch in range(8):
    net.train()
    for _ in range(25):
        loss = net(torch.randn(32, 64)).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    torch.cuda.empty_cache()
    net.eval()
    with torch.no_grad():
        for _ in range(4):
            net(torch.randn(128, 64))
    torch.cuda.empty_cache()
