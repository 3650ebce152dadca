"""train() and test() over one graph; test() with the decorator."""

import torch
import torch.nn.functional as F
from torch import nn

lin1, lin2 = nn.Linear(24, 48), nn.Linear(48, 4)
model = nn.ModuleList([lin1, lin2])
x, y = torch.randn(150, 24), torch.randint(4, (150,))
adj, mask = (torch.rand(150, 150) < 0.05).float().softmax(1), torch.rand(150) < 0.5
opt = torch.optim.Adam(model.parameters(), lr=0.01)


def forward():
    return adj @ lin2(F.relu(adj @ lin1(x)))


@torch.no_grad()
def test():
    model.eval()
    return (forward().argmax(1) == y)[~mask].float().mean().item()


for epoch in range(25):
    model.train()
    opt.zero_grad()
    F.cross_entropy(forward()[mask], y[mask]).backward()
    opt.step()
    test()
