# device: virtual:64MiB
# runs out of memory
# cause: size
"""A recurrent classifier with too many sequences in a batch."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(200, 48)
        self.rnn = nn.LSTM(48, 96, num_layers=2, batch_first=True)
        self.out = nn.Linear(96, 12)

    def forward(self, ids):
        return self.out(self.rnn(self.emb(ids))[0])


data = TensorDataset(torch.randint(0, 200, (2048, 40)), torch.randint(0, 12, (2048, 40)))
loader = DataLoader(data, batch_size=512, shuffle=True)
model = Tagger()
opt = torch.optim.Adam(model.parameters(), 1e-3)
for ids, tags in loader:
    loss = nn.functional.cross_entropy(model(ids).flatten(0, 1), tags.flatten())
    opt.zero_grad()
    loss.backward()
    opt.step()
