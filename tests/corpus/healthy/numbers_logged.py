# device: cpu
import numpy as np
import torch
from torch import nn

net = nn.Linear(32, 10)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
history, lines, confusion = [], [], np.zeros((10, 10))
for step in range(800):
    y = torch.randint(0, 10, (32,))
    out = net(torch.randn(32, 32))
    loss = nn.functional.cross_entropy(out, y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    history.append(loss.item())
    lines.append(f"step {step} loss {loss.item():.4f}")
    np.add.at(confusion, (y.numpy(), out.argmax(1).numpy()), 1)
