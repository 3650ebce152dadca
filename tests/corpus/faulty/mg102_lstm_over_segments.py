"""An LSTM over the segments of each document, a backward for each: the state is never cut from the segment before."""

import torch
from torch import nn

torch.manual_seed(0)
cell = nn.LSTM(16, 32, batch_first=True)
head = nn.Linear(32, 8)
opt = torch.optim.SGD([*cell.parameters(), *head.parameters()], lr=0.01)


def train(doc):
    state = None
    opt.zero_grad()
    for seg in doc.split(8, 1):
        out, state = cell(seg, state)  # !MG102 state
        loss = head(out).square().mean()
        loss.backward(retain_graph=True)
    opt.step()


for i in range(3):
    train(torch.randn(4, 8 * 14, 16))
