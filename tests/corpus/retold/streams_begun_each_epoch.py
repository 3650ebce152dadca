"""An autoencoder that goes through a part of its shuffled data in each epoch; the rest of each pass stays."""

import torch
from torch import nn


class Sampler:
    def __init__(self, data):
        self.data, self.streams = data, []

    def _walk(self, seed):
        g = torch.Generator().manual_seed(seed)
        order = self.data[torch.randperm(len(self.data), generator=g)]
        for i in range(0, len(order), 32):
            yield order[i:i + 32]

    def begin(self, epoch):
        self.streams.append(self._walk(epoch))  # !MG301 Sampler.streams
        return self.streams[-1]


def main():
    torch.manual_seed(0)
    data = torch.randn(1200, 256)
    sampler = Sampler(data)
    ae = nn.Sequential(nn.Linear(256, 32), nn.ReLU(), nn.Linear(32, 256))
    opt = torch.optim.Adam(ae.parameters(), 1e-3)
    for epoch in range(14):
        stream = sampler.begin(epoch)
        for _ in range(8):
            x = next(stream)
            loss = (ae(x) - x).square().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
        print(epoch, loss.item())


main()
