# device: virtual:40MiB
# runs out of memory
# cause: validation-graph|leak
"""Validation after an epoch: eval mode, but gradients are on and the predictions are kept."""

import torch
from torch import nn

net = nn.Sequential(
    nn.Linear(32, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 8)
)
opt = torch.optim.SGD(net.parameters(), 0.05)
train = [(torch.randn(64, 32), torch.randint(0, 8, (64,))) for _ in range(20)]
val = [(torch.randn(512, 32), torch.randint(0, 8, (512,))) for _ in range(40)]


def evaluate(model):
    model.eval()
    preds, labels = [], []
    for x, y in val:
        preds.append(model(x))
        labels.append(y)
    return (torch.cat(preds).argmax(1) == torch.cat(labels)).float().mean().item()


for epoch in range(2):
    net.train()
    for x, y in train:
        loss = nn.functional.cross_entropy(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(epoch, evaluate(net))
