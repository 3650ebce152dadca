"""Hard-example mining: the last loss of each sample is remembered by index, as a row of a live tensor."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Indexed(Dataset):
    def __init__(self, n=1600):
        self.x, self.y = torch.randn(n, 64), torch.randint(0, 4, (n,))

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return i, self.x[i], self.y[i]


class Miner:
    def __init__(self):
        self.last = {}

    def observe(self, idx, losses):
        self.last.update(zip(idx.tolist(), losses))  # !MG101 Miner.last

    def hardest(self, k):
        return sorted(self.last, key=lambda i: -self.last[i].item())[:k]


net, miner = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 4)), Miner()
opt = torch.optim.SGD(net.parameters(), 0.1)
for epoch in range(2):
    for idx, x, y in DataLoader(Indexed(), 32, shuffle=True):
        per_sample = nn.functional.cross_entropy(net(x), y, reduction="none")
        opt.zero_grad()
        per_sample.mean().backward()
        opt.step()
        miner.observe(idx, per_sample)
    print(epoch, miner.hardest(3))
