# Truncated backpropagation: windows of one sequence, a backward for each, the state detached, one step for all.
import torch
from torch import nn

torch.manual_seed(0)
rnn, head = nn.GRU(32, 128, batch_first=True), nn.Linear(128, 32)
optimizer = torch.optim.Adam([*rnn.parameters(), *head.parameters()])
for step in range(6):
    state = None
    for _ in range(8):
        x = torch.randn(8, 25, 32)
        out, state = rnn(x, state)
        (head(out) - x).square().mean().div(8).backward()
        state = state.detach()
    optimizer.step()
    optimizer.zero_grad()
