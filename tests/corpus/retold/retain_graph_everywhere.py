"""retain_graph=True on every backward of a two-headed network "because it did not work without"."""

import torch
from torch import nn

shared = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU())
head_a, head_b = nn.Linear(256, 10), nn.Linear(256, 5)
params = [*shared.parameters(), *head_a.parameters(), *head_b.parameters()]
opt = torch.optim.Adam(params, lr=1e-3)
ce = nn.CrossEntropyLoss()
for i in range(20):
    x, a, b = torch.randn(128, 64), torch.randint(10, (128,)), torch.randint(5, (128,))
    h = shared(x)
    opt.zero_grad()
    loss = ce(head_a(h), a) + ce(head_b(h), b)
    loss.backward(retain_graph=True)  # !MG103 loss
    opt.step()
