"""L-BFGS without a forward of its own: each step calls the closure as often as it likes, and numbers are kept."""

import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))
optimizer = torch.optim.LBFGS(net.parameters(), lr=0.5, max_iter=5, history_size=6)
x, y = torch.randn(64, 8), torch.randn(64, 1)
history = []


def closure():
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(net(x), y) + 1e-4 * sum(p.square().sum() for p in net.parameters())
    loss.backward()
    return loss


for step in range(40):
    loss = optimizer.step(closure)
    history.append(loss.item())
    if step % 10 == 9:
        with torch.no_grad():
            print(step, history[-1], net(x).std().item())
