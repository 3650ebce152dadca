# device: cpu
"""Every probability of every batch as Python floats, in dictionaries."""

import torch
from torch import nn


class Log:
    def __init__(self):
        self.rows = []

    def add(self, step, probs):
        self.rows.append({"step": step, "probs": probs.tolist()})  # !MG701 Log.rows


log = Log()
net = nn.Linear(32, 1000)
opt = torch.optim.SGD(net.parameters(), lr=0.01)
for step in range(400):
    logits = net(torch.randn(64, 32))
    loss = nn.functional.cross_entropy(logits, torch.randint(0, 1000, (64,)))
    opt.zero_grad()
    loss.backward()
    opt.step()
    log.add(step, logits.softmax(1))
