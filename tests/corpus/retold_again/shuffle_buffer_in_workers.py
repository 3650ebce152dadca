# device: cpu
"""A shuffle buffer of 800 samples fills in each worker, and is full then."""

import random

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset


class Shuffled(IterableDataset):
    def __iter__(self):
        buffer = []
        for i in range(3000):
            sample = torch.randn(3000)
            if len(buffer) < 800:
                buffer.append(sample)
            else:
                j = random.randrange(800)
                out, buffer[j] = buffer[j], sample
                yield out


if __name__ == "__main__":
    net = nn.Linear(3000, 8)
    opt = torch.optim.SGD(net.parameters(), lr=0.01)
    for x in DataLoader(Shuffled(), batch_size=16, num_workers=2):
        loss = net(x).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
