# device: virtual:64MiB
# runs out of memory
"""Documents are padded to the longest of the batch; one document is five times as long as the rest."""

import random

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

random.seed(1)


class Documents(Dataset):
    def __init__(self):
        self.items = [torch.randint(1, 500, (random.randint(50, 150),)) for _ in range(1200)]
        self.items[1111] = torch.randint(1, 500, (6000,))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.up, self.out = nn.Embedding(500, 64), nn.Linear(64, 128), nn.Linear(128, 8)

    def forward(self, t):
        return self.out(torch.relu(self.up(self.emb(t))))


model = Tagger()
opt = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(Documents(), batch_size=8, collate_fn=lambda b: pad_sequence(b, batch_first=True))
for tokens in loader:
    loss = model(tokens).logsumexp(-1).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
# !MG503 loader
