# device: virtual:40MiB
"""Super resolution by a fixed upsampler with a small trained head; the last output is alive in the next forward."""

import torch
from torch import nn


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(1, 3, 1, 1))
        self.bias = nn.Parameter(torch.zeros(1, 3, 1, 1))

    def forward(self, low):
        high = nn.functional.interpolate(low, scale_factor=16, mode="bicubic").clamp_(0, 1)
        edges = (high - high.roll(1, -1)).abs_() + (high - high.roll(1, -2)).abs_()
        return high + edges * self.gain + self.bias


def main():
    head = Head()
    opt = torch.optim.SGD(head.parameters(), lr=1e-3)
    for _ in range(12):
        low = torch.rand(2, 3, 24, 24)
        sr = head(low)  # !MG303 sr
        loss = sr.var()
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(loss.item())


main()
