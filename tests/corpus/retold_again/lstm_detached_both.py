"""A stateful LSTM whose state is cut between the chunks, in a helper."""

import torch
from torch import nn


def repackage(h):
    return h.detach() if isinstance(h, torch.Tensor) else tuple(repackage(v) for v in h)


emb, lstm, out = nn.Embedding(40, 16), nn.LSTM(16, 32), nn.Linear(32, 40)
params = [*emb.parameters(), *lstm.parameters(), *out.parameters()]
opt = torch.optim.SGD(params, lr=0.5)
text = torch.randint(40, (401, 4))
state = None
for i in range(0, 400, 10):
    y, state = lstm(emb(text[i : i + 10]), state)
    loss = nn.functional.cross_entropy(out(y).flatten(0, 1), text[i + 1 : i + 11].flatten())
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(params, 0.25)
    opt.step()
    state = repackage(state)
