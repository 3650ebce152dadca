import torch
from torch import nn

cell, head = nn.GRUCell(8, 16), nn.Linear(16, 8)
optimizer = torch.optim.Adam([*cell.parameters(), *head.parameters()])
hidden = torch.zeros(4, 16)
for step in range(80):
    loss = 0.0
    for _ in range(6):
        x = torch.randn(4, 8)
        hidden = cell(x, hidden)
        loss = loss + (head(hidden) - x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    hidden = hidden.detach()
