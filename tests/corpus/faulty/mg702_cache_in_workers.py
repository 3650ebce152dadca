# device: cpu
"""Each worker keeps every picture that it has decoded, and the workers persist."""

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Cached(Dataset):
    def __init__(self):
        self.cache = {}

    def __len__(self):
        return 240

    def __getitem__(self, i):
        if i not in self.cache:
            self.cache[i] = np.random.default_rng(i).random((3, 64, 64))  # !MG702 cache
        return torch.from_numpy(self.cache[i]).float(), i % 2


if __name__ == "__main__":
    net = nn.Sequential(nn.Flatten(), nn.Linear(3 * 64 * 64, 2))
    opt = torch.optim.SGD(net.parameters(), lr=1e-4)
    loader = DataLoader(Cached(), batch_size=8, shuffle=True, num_workers=2, persistent_workers=True)
    for epoch in range(2):
        for x, y in loader:
            loss = nn.functional.cross_entropy(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
