"""A memory network that writes its memory in forward and never cuts the graph; the head alone is trained."""

import torch
from torch import nn


class MemoryNet(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.cell = nn.GRUCell(dim, dim)
        self.head = nn.Linear(dim, 4)
        self.memory = torch.zeros(8, dim)

    def forward(self, x):
        self.memory = self.cell(x, self.memory)  # !MG102 MemoryNet.memory
        return self.head(self.memory.detach())


net = MemoryNet()
optimizer = torch.optim.SGD(net.head.parameters(), lr=0.1)
for step in range(40):
    y = torch.randint(4, (8,))
    loss = nn.functional.cross_entropy(net(torch.randn(8, 16)), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
