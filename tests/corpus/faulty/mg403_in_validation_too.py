import torch
from torch import nn


def evaluate(net, data):
    net.eval()
    with torch.no_grad():
        total = 0.0
        for x in data:
            total += net(x).sum().item()
            torch.cuda.empty_cache()  # !MG403 -
    return total


net = nn.Linear(32, 4)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
data = [torch.randn(8, 32) for _ in range(12)]
for epoch in range(4):
    net.train()
    for x in data:
        loss = net(x).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    evaluate(net, data)
