import torch
from torch import nn


def train(model, batches=25):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    total_loss = 0.0
    for _ in range(batches):
        out = model(torch.randn(8, 16))
        loss = out.square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total_loss += loss  # !MG101 total_loss
    return total_loss / batches


if __name__ == "__main__":
    train(nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 1)))
