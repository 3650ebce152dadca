# device: virtual:256MiB
"""functools.lru_cache(maxsize=None) on a method that takes tensors: every argument and result is kept."""

import functools

import torch
from torch import nn


class Spectral:
    @functools.lru_cache(maxsize=None)  # !MG501 Spectral.features
    def features(self, wave):
        return torch.stft(wave, 128, 64, window=torch.hann_window(128), return_complex=True).abs()


front = Spectral()
net = nn.Sequential(nn.Conv1d(65, 64, 3), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(64, 10))
optimizer = torch.optim.Adam(net.parameters())


def batches(n):
    for _ in range(n):
        yield torch.randn(16, 8000), torch.randint(0, 10, (16,))


for epoch in range(3):
    for wave, label in batches(30):
        loss = nn.functional.cross_entropy(net(front.features(wave)), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
