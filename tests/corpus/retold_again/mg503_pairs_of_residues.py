# device: virtual:148MiB
# runs out of memory
"""Proteins sorted by length, to pad less: the longest come last."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Proteins(Dataset):
    def __init__(self, n=240):
        g = torch.Generator().manual_seed(5)
        lengths = (torch.rand(n, generator=g).pow(2) * 400 + 24).long().sort().values.tolist()
        self.seqs = [torch.randint(0, 21, (k,), generator=g) for k in lengths]

    def __len__(self):
        return len(self.seqs)

    def __getitem__(self, i):
        return self.seqs[i]


class Fold(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(21, 32)
        self.pair = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, s):
        e = self.emb(s)
        return self.pair(e[:, :, None] + e[:, None, :])


net = Fold()
opt = torch.optim.Adam(net.parameters())
loader = DataLoader(Proteins(), batch_size=2, collate_fn=lambda b: nn.utils.rnn.pad_sequence(b, True))
for epoch in range(2):
    for seq in loader:
        loss = net(seq).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
# !MG503 loader
# !MG402 -
