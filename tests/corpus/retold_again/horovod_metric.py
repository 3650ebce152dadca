"""A running metric in the style of distributed examples; the loss comes in with its graph."""

import torch
import torch.nn.functional as F
from torch import nn


class Metric:
    def __init__(self, name):
        self.name = name
        self.sum = torch.tensor(0.0)
        self.n = torch.tensor(0.0)

    def update(self, val):
        self.sum = self.sum + val  # !MG101 Metric.sum
        self.n += 1

    @property
    def avg(self):
        return self.sum / self.n


net = nn.Sequential(
    nn.Conv2d(3, 8, 3, 2), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10)
)
sgd = torch.optim.SGD(net.parameters(), lr=0.0125, momentum=0.9, weight_decay=5e-5)


def train(epoch):
    net.train()
    train_loss = Metric("train_loss")
    for _ in range(20):
        data, target = torch.rand(8, 3, 16, 16), torch.randint(10, (8,))
        sgd.zero_grad()
        loss = F.cross_entropy(net(data), target)
        train_loss.update(loss)
        loss.backward()
        sgd.step()
    print(epoch, train_loss.avg.item())


for e in range(2):
    train(e)
