"""The last token's state of every batch is kept for a probe; each slice keeps the whole sequence."""

import torch
from torch import nn


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(1000, 64)
        self.rnn = nn.GRU(64, 64, batch_first=True)
        self.lm = nn.Linear(64, 1000)

    def forward(self, tokens):
        states, _ = self.rnn(self.embed(tokens))
        return self.lm(states), states


model = Encoder()
optimizer = torch.optim.Adam(model.parameters())
probe_inputs = []
for step in range(24):
    tokens = torch.randint(1000, (32, 65))
    logits, states = model(tokens[:, :-1])
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    probe_inputs.append(states.detach()[:, -1])  # !MG302 probe_inputs
