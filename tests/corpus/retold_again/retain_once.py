"""Two optimizers on one graph: the first backward retains it, the second does not."""

import torch
from torch import nn

enc, task, domain = nn.Linear(24, 64), nn.Linear(64, 3), nn.Linear(64, 2)
o1, o2 = torch.optim.Adam([*enc.parameters(), *task.parameters()]), torch.optim.Adam(domain.parameters())
for _ in range(30):
    z = torch.relu(enc(torch.randn(32, 24)))
    l1 = nn.functional.cross_entropy(task(z), torch.randint(3, (32,)))
    l2 = nn.functional.cross_entropy(domain(z), torch.randint(2, (32,)))
    o2.zero_grad()
    l2.backward(retain_graph=True, inputs=list(domain.parameters()))
    o1.zero_grad()
    l1.backward()
    o1.step()
    o2.step()
