# device: virtual:256MiB
"""Validation predictions are gathered in a list without no_grad: all their graphs stand until the epoch's end."""
# MG201 by batch 12: told as both, as kept graphs first, and as an evaluation that needs none.
# !MG201 Net

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = (
            nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU()),
            nn.Linear(512, 1),
        )

    def forward(self, x):
        return self.head(self.body(x)).squeeze(-1)


def validate(net, loader):
    net.eval()
    preds, targets = [], []
    for x, y in loader:
        preds.append(net(x))  # !MG101 preds
        targets.append(y)
    return nn.functional.mse_loss(torch.cat(preds), torch.cat(targets)).item()


train_set = TensorDataset(torch.randn(2000, 64), torch.randn(2000))
val_set = TensorDataset(torch.randn(4000, 64), torch.randn(4000))
net = Net()
opt = torch.optim.Adam(net.parameters())
for epoch in range(3):
    net.train()
    for x, y in DataLoader(train_set, 100):
        opt.zero_grad()
        nn.functional.mse_loss(net(x), y).backward()
        opt.step()
    print(epoch, validate(net, DataLoader(val_set, 200)))
