"""An engine whose backward keeps the graph for everyone, because one caller once needed it."""

import torch
from torch import nn


class Engine:
    def __init__(self, net, lr):
        self.net = net
        self.opt = torch.optim.Adam(net.parameters(), lr=lr)

    def backward(self, loss):
        loss.backward(retain_graph=True)  # !MG103 loss

    def step(self, loss):
        self.opt.zero_grad()
        self.backward(loss)
        self.opt.step()


engine = Engine(nn.Sequential(nn.Linear(32, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 4)), 1e-3)
for batch in range(30):
    x = torch.randn(128, 32)
    y = x[:, :4].sign()
    prediction = engine.net(x)
    loss = nn.functional.smooth_l1_loss(prediction, y)
    engine.step(loss)
    if batch % 10 == 0:
        print(batch, loss.item())
