"""One head's attention of the first sentence is kept per validation batch for the paper's figure."""

import torch
from torch import nn


class Probe:
    def __init__(self):
        self.maps = []

    def __call__(self, attn):
        self.maps.append(attn[0, 0])  # !MG302 Probe.maps


class Layer(nn.Module):
    def __init__(self, dim=64, heads=8):
        super().__init__()
        self.qk, self.heads = nn.Linear(dim, 2 * dim), heads

    def forward(self, x):
        q, k = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.qk(x).chunk(2, -1))
        return torch.softmax(q @ k.transpose(-1, -2), -1)


layer, probe = Layer().eval(), Probe()
with torch.inference_mode():
    for _ in range(40):
        probe(layer(torch.randn(8, 64, 64)))
