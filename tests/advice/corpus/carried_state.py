# device: virtual:40MiB
# runs out of memory
# cause: leak
"""A language model over one long text; the state goes on with the graph of everything before."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.rnn, self.out = nn.Embedding(60, 64), nn.GRU(64, 128, batch_first=True), nn.Linear(128, 60)

    def forward(self, ids, state=None):
        h, state = self.rnn(self.emb(ids), state)
        return self.out(h), state


model = Model()
opt = torch.optim.Adam(model.parameters())
state, total = None, 0
for step in range(300):
    ids = torch.randint(0, 60, (16, 25))
    logits, state = model(ids, state)
    total = total + nn.functional.cross_entropy(logits.flatten(0, 1), ids.flatten())
    if step % 100 == 99:
        opt.zero_grad()
        total.backward()
        opt.step()
        state, total = None, 0
