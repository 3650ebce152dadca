"""Truncated backpropagation through time: four chunks, one backward, then the state is cut."""

import torch
from torch import nn


class Char(nn.Module):
    def __init__(self):
        super().__init__()
        self.e, self.r, self.o = nn.Embedding(80, 64), nn.LSTM(64, 128, batch_first=True), nn.Linear(128, 80)

    def forward(self, x, s):
        h, s = self.r(self.e(x), s)
        return self.o(h), s


m, state = Char(), None
opt = torch.optim.Adam(m.parameters(), 2e-3)
pending = 0.0
for i in range(80):
    x = torch.randint(0, 80, (16, 20))
    out, state = m(x, state)
    pending = pending + nn.functional.cross_entropy(out.flatten(0, 1), x.roll(-1, 1).flatten())
    if i % 4 == 3:
        opt.zero_grad()
        pending.backward()
        nn.utils.clip_grad_norm_(m.parameters(), 0.5)
        opt.step()
        state, pending = tuple(z.detach() for z in state), 0.0
