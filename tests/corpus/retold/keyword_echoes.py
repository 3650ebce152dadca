"""PyTorch FAQ on scopes: "don't hold onto tensors and variables you don't need" (audio front end inside the step).

Keyword spotting: noise and reverb are added to waveforms, then a log-spectrum goes to a ConvNet.
"""

import argparse

import torch
from torch import nn
import torch.nn.functional as F

RATE = 8000


class Spotter(nn.Module):
    def __init__(self, words):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(1, 24, 3, 2, 1),
            nn.ReLU(),
            nn.Conv2d(24, 48, 3, 2, 1),
            nn.ReLU(),
            nn.Conv2d(48, 64, 3, 2, 1),
            nn.ReLU(),
        )
        self.fc = nn.Linear(64, words)

    def forward(self, x):
        return self.fc(self.net(x).mean((2, 3)))


def recordings(seed, batch, words):
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(words, (batch,), generator=g)
    t = torch.arange(RATE) / RATE
    pitch = 200 + 150 * y.float()
    return torch.sin(6.2832 * pitch[:, None] * t) + 0.1 * torch.randn(batch, RATE, generator=g), y


def train_step(model, opt, wave, word, window, impulse):
    opt.zero_grad()
    echoes = wave.new_empty(len(impulse), *wave.shape)  # !MG304 echoes
    for k, (delay, gain) in enumerate(impulse):
        echoes[k] = wave.roll(delay, -1) * gain
    wet = echoes.sum(0)
    spec = torch.stft(wet, 256, 128, window=window, return_complex=True)
    features = torch.log1p(spec.abs())[:, None, :96]
    del wet, spec
    loss = F.cross_entropy(model(features), word)
    loss.backward()
    opt.step()
    return loss.item()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--batch", type=int, default=48)
    p.add_argument("--steps", type=int, default=16)
    p.add_argument("--words", type=int, default=10)
    args = p.parse_args()
    torch.manual_seed(0)
    model = Spotter(args.words)
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
    window = torch.hann_window(256)
    impulse = [(17 * k, 0.7**k) for k in range(12)]
    for step in range(args.steps):
        wave, word = recordings(step, args.batch, args.words)
        loss = train_step(model, opt, wave, word, window, impulse)
        if step % 5 == 0:
            print(f"step {step}: loss {loss:.3f}")


if __name__ == "__main__":
    main()
