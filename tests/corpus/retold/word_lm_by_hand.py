"""A word language model whose weights are stepped by hand, the hidden state repackaged for each chunk."""

import torch
from torch import nn


class RNNModel(nn.Module):
    def __init__(self, ntoken=40, dim=24):
        super().__init__()
        self.encoder, self.rnn, self.decoder = nn.Embedding(ntoken, dim), nn.LSTM(dim, dim), nn.Linear(dim, ntoken)

    def forward(self, data, hidden):
        out, hidden = self.rnn(self.encoder(data), hidden)
        return self.decoder(out), hidden


def repackage(h):
    return h.detach() if isinstance(h, torch.Tensor) else tuple(repackage(v) for v in h)


model = RNNModel()
hidden, total_loss, lr = (torch.zeros(1, 8, 24), torch.zeros(1, 8, 24)), 0.0, 1.0
for i in range(50):
    data = torch.randint(40, (10, 8))
    model.zero_grad()
    hidden = repackage(hidden)
    output, hidden = model(data[:-1], hidden)
    loss = nn.functional.cross_entropy(output.flatten(0, 1), data[1:].flatten())
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.25)
    for p in model.parameters():
        p.data.add_(p.grad, alpha=-lr)
    total_loss += loss.item()
