"""Keyword spotting with on-the-fly augmentation of raw waveforms."""

# device: virtual:512MiB
import math
import torch
import torch.nn as nn
import torch.nn.functional as F

SR = 16000


class SpecNet(nn.Module):
    def __init__(self, classes=12):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(1, 32, 5),
            nn.ReLU(),
            nn.Conv2d(32, 16, 5, 2),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(4),
            nn.Flatten(),
            nn.Linear(256, classes),
        )

    def forward(self, s):
        return self.net(s.unsqueeze(1))


def mel_filters(n_fft=1024, n_mels=40):
    f = torch.linspace(0, 1, n_fft // 2 + 1)
    c = torch.linspace(0.01, 0.99, n_mels).unsqueeze(1)
    return torch.clamp(1 - (f - c).abs() * n_mels, min=0)


MEL = mel_filters()


def load_batch(gen, n=20):
    t = torch.arange(SR) / SR
    y = torch.randint(0, 12, (n,), generator=gen)
    tone = torch.sin(2 * math.pi * (200 + 150 * y.float()).unsqueeze(1) * t)
    return tone, y


def training_step(model, opt, wave, y, window):
    # augment: gain, noise, shift
    noisy = wave * (0.5 + torch.rand(len(wave), 1)) + 0.1 * torch.randn_like(wave)
    rolled = torch.roll(noisy, 800, dims=1)
    spec = torch.stft(rolled, 1024, 200, window=window, return_complex=True)
    power = spec.abs().square()  # !MG304 power
    mel = torch.log1p(MEL @ power)
    del noisy, rolled, spec
    mel = mel - mel.mean(dim=(1, 2), keepdim=True)
    opt.zero_grad()
    logits = model(mel)
    loss = F.cross_entropy(logits, y)
    loss.backward()
    opt.step()
    return loss.item(), (logits.argmax(1) == y).float().mean().item()


def main():
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(1)
    model = SpecNet()
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    window = torch.hann_window(1024)
    for step in range(36):
        wave, y = load_batch(gen)
        loss, acc = training_step(model, opt, wave, y, window)
        if step % 10 == 0:
            print(f"{step:03d} loss={loss:.3f} acc={acc:.2f}")


if __name__ == "__main__":
    main()
