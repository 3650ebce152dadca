# device: virtual:64MiB
# runs out of memory
# cause: long-batch|fragmentation
"""Sentences sorted by length: the last batches are the longest."""

import torch
from torch import nn

torch.manual_seed(0)
lengths = sorted(int(10 + 50 * torch.rand(()).item()) for _ in range(36)) + [300, 340, 380]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(100, 64)
        self.enc = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
        self.out = nn.Linear(64, 100)

    def forward(self, ids):
        return self.out(self.enc(self.emb(ids)))


net = Net()
opt = torch.optim.Adam(net.parameters())
for length in lengths:
    ids = torch.randint(0, 100, (16, length))
    loss = nn.functional.cross_entropy(net(ids).flatten(0, 1), ids.flatten())
    opt.zero_grad()
    loss.backward()
    opt.step()
