"""Learned wave-shaper on clips of their own length, one clip a step."""

# device: virtual:82MiB
# !MG402 -
import random

import torch
from torch import nn


class WaveShaper(nn.Module):
    def __init__(self, ch=6):
        super().__init__()
        self.gain, self.bias = nn.Parameter(torch.randn(ch, 1)), nn.Parameter(torch.zeros(ch, 1))
        self.mix = nn.Conv1d(ch, 3, 1)
        self.out = nn.Conv1d(3, 1, 1)

    def forward(self, w):
        return self.out(torch.tanh(self.mix(torch.tanh(w * self.gain + self.bias))))


def clips(n, sr=16000, seed=6):
    rng = random.Random(seed)
    # sortagrad: short clips first
    for seconds in sorted(rng.uniform(12.0, 60.0) for _ in range(n)):
        yield torch.randn(1, 1, int(seconds * sr))


def main():
    torch.manual_seed(6)
    model = WaveShaper()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    for i, w in enumerate(clips(70)):
        optimizer.zero_grad()
        loss = (model(w) - w).abs().mean()
        loss.backward()
        optimizer.step()
        if i % 10 == 0:
            print(f"clip {i:3d} {w.numel() / 16000:5.1f} s  l1 {loss.item():.4f}")


if __name__ == "__main__":
    main()
