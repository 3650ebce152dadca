"""A last test that forgot no_grad, after evaluations that had it."""

# MG201 by batch 324: 320 batches of evaluation came before, and were under no_grad.
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 1))
opt = torch.optim.Adam(model.parameters())


def train(n):
    for step in range(n):
        x = torch.randn(256, 64)
        loss = (model(x).squeeze() - x.sum(1)).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()


def test():
    model.eval()
    tot = 0.0
    for _ in range(12):
        x = torch.randn(1024, 64)
        out = model(x)  # !MG201 Sequential
        tot += (out.squeeze() - x.sum(1)).pow(2).mean().item()
    model.train()
    return tot / 10


def val():
    model.eval()
    with torch.no_grad():
        for _ in range(40):
            model(torch.randn(1024, 64))
    model.train()


for _ in range(8):
    train(60)
    val()
print(test())
