"""Keyword spotting: raw audio -> log-spectrogram -> small conv net.

Spectrograms are slow to compute, therefore the dataset keeps them.
"""

import functools

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SR = 16000
N_FFT = 512
HOP = 128


@functools.lru_cache(maxsize=None)
def window():
    return np.hanning(N_FFT).astype(np.float32)


class SpeechCommands(Dataset):
    words = ["yes", "no", "up", "down", "left", "right", "on", "off"]

    def __init__(self, n_files: int, augment: bool = True):
        self.n_files = n_files
        self.augment = augment
        self.cache = {}

    def __len__(self):
        return self.n_files

    def read(self, i):
        rng = np.random.default_rng(i)
        f0 = 100 + 50 * (i % len(self.words))
        t = np.arange(SR, dtype=np.float32) / SR
        return np.sin(2 * np.pi * f0 * t) + 0.1 * rng.standard_normal(SR).astype(np.float32)

    def spectrogram(self, wav):
        frames = np.lib.stride_tricks.sliding_window_view(wav, N_FFT)[::HOP]
        spec = np.abs(np.fft.rfft(frames * window(), axis=1)).astype(np.float32)
        return np.log1p(spec)

    def __getitem__(self, i):
        shift = int(np.random.randint(-SR // 10, SR // 10)) if self.augment else 0
        key = (i, shift)
        if key not in self.cache:
            wav = np.roll(self.read(i), shift)
            self.cache[key] = self.spectrogram(wav)  # !MG701 SpeechCommands.cache
        return torch.tensor(self.cache[key]), i % len(self.words)


class KWS(nn.Module):
    def __init__(self, n_words):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv1d(N_FFT // 2 + 1, 64, 5, stride=2),
            nn.ReLU(),
            nn.Conv1d(64, 64, 5, stride=2),
            nn.ReLU(),
            nn.AdaptiveMaxPool1d(1),
            nn.Flatten(),
            nn.Linear(64, n_words),
        )

    def forward(self, spec):
        return self.net(spec.transpose(1, 2))


def train_step(model, opt, spec, word):
    opt.zero_grad()
    loss = nn.functional.cross_entropy(model(spec), word)
    loss.backward()
    opt.step()
    return loss.item()


def run(epochs=6, batch=16):
    torch.manual_seed(0)
    np.random.seed(0)
    ds = SpeechCommands(96)
    loader = DataLoader(ds, batch_size=batch, shuffle=True)
    model = KWS(len(ds.words))
    opt = torch.optim.Adam(model.parameters(), 1e-3)
    for ep in range(epochs):
        losses = [train_step(model, opt, s, w) for s, w in loader]
        print(f"epoch {ep}: loss {np.mean(losses):.3f}")


if __name__ == "__main__":
    run()
