# A known miss: a generator's variable is as old as the loop that draws from it: only functions on the stack are asked.
"""Autoencoder on spectra of a long multi-channel recording."""

import itertools

import torch
import torch.nn.functional as F
from torch import nn

CHANNELS, SAMPLES, FFT = 24, 480_000, 256


def spectra(recording):
    window = torch.hann_window(FFT)
    power = [
        torch.stft(channel, FFT, hop_length=2048, window=window, return_complex=True).abs().square().t()
        for channel in recording
    ]
    return torch.cat(power).log1p()


def stream(batch, seed=0):
    rng = torch.Generator().manual_seed(seed)
    time = torch.arange(SAMPLES) / 8000
    tones = torch.randint(50, 3000, (CHANNELS, 1), generator=rng)
    recording = torch.sin(6.28 * tones * time) + 0.3 * torch.randn(CHANNELS, SAMPLES, generator=rng)  # !MG304 recording
    frames = spectra(recording)
    mean, std = frames.mean(0), frames.std(0)
    frames.sub_(mean).div_(std + 1e-5)
    while True:
        for rows in torch.randperm(len(frames), generator=rng).split(batch):
            yield frames[rows]


class AutoEncoder(nn.Module):
    def __init__(self, bins=FFT // 2 + 1, code=16):
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(bins, 256), nn.GELU(), nn.Linear(256, code))
        self.decode = nn.Sequential(nn.Linear(code, 256), nn.GELU(), nn.Linear(256, bins))

    def forward(self, x):
        return self.decode(self.encode(x))


def step(model, optimizer, frames):
    optimizer.zero_grad()
    loss = F.mse_loss(model(frames), frames)
    loss.backward()
    optimizer.step()
    return loss.item()


def main():
    torch.manual_seed(0)
    model = AutoEncoder()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    running = None
    for number, frames in enumerate(itertools.islice(stream(2048), 150), 1):
        loss = step(model, optimizer, frames)
        running = loss if running is None else 0.95 * running + 0.05 * loss
        if number % 30 == 0:
            print(f"step {number}: reconstruction {running:.4f}")


if __name__ == "__main__":
    main()
