"""Every loss becomes an attribute of its own."""

import torch
from torch import nn


class Log:
    pass


log, model = Log(), nn.Linear(8, 3)
sgd = torch.optim.SGD(model.parameters(), lr=0.1)
for i in range(30):
    x, y = torch.randn(10, 8), torch.randint(3, (10,))
    loss = nn.functional.cross_entropy(model(x), y)
    sgd.zero_grad()
    loss.backward()
    sgd.step()
    setattr(log, f"loss_{i}", loss)  # !MG101 Log.loss_0
