"""Deep SVDD for vibration anomaly detection with a slowly moving hypersphere centre."""

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset


class VibrationEncoder(nn.Module):
    def __init__(self, latent=32):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv1d(3, 16, 9, 2, 4, bias=False),
            nn.LeakyReLU(0.1),
            nn.Conv1d(16, 32, 9, 2, 4, bias=False),
            nn.LeakyReLU(0.1),
            nn.Conv1d(32, 32, 9, 2, 4, bias=False),
            nn.LeakyReLU(0.1),
        )
        self.fc = nn.Linear(32 * 32, latent, bias=False)

    def forward(self, x):
        return self.fc(self.conv(x).flatten(1))


class DeepSVDD:
    def __init__(self, latent=32, nu=0.05, momentum=0.98, lr=1e-3):
        self.encoder = VibrationEncoder(latent)
        self.optimizer = torch.optim.Adam(self.encoder.parameters(), lr=lr, weight_decay=1e-6)
        self.momentum, self.nu = momentum, nu
        self.center = None
        self.radius = 0.0

    def init_center(self, loader):
        total, n = 0, 0
        with torch.no_grad():
            for (x,) in loader:
                total = total + self.encoder(x).sum(0)
                n += len(x)
        self.center = total / n

    def move_center(self, z):
        self.center = self.momentum * self.center + (1 - self.momentum) * z.mean(0)  # !MG102 DeepSVDD.center

    def train_epoch(self, loader):
        losses, dists = [], []
        for (x,) in loader:
            self.optimizer.zero_grad()
            z = self.encoder(x)
            dist = (z - self.center.detach()).pow(2).sum(1)
            loss = dist.mean()
            loss.backward()
            self.optimizer.step()
            self.move_center(z)
            losses.append(loss.item())
            dists.extend(dist.tolist())
        dists.sort()
        self.radius = dists[int((1 - self.nu) * len(dists))]
        return sum(losses) / len(losses)

    @torch.no_grad()
    def score(self, x):
        return (self.encoder(x) - self.center).pow(2).sum(1)


def signals(n, fault=False):
    t = torch.linspace(0, 1, 256)
    freq = 10 + 2 * torch.rand(n, 3, 1)
    x = torch.sin(6.283 * freq * t) + 0.3 * torch.randn(n, 3, 256)
    if fault:
        x = x + (torch.rand(n, 3, 256) < 0.03) * 3.0
    return x


def main():
    torch.manual_seed(4)
    loader = DataLoader(TensorDataset(signals(1200)), batch_size=20, shuffle=True)
    good, bad = signals(100), signals(100, fault=True)
    model = DeepSVDD()
    model.init_center(loader)
    for epoch in range(4):
        loss = model.train_epoch(loader)
        sg, sb = model.score(good), model.score(bad)
        auc = (sb[:, None] > sg[None]).float().mean().item()
        print(f"epoch {epoch}: loss {loss:.4f} radius {model.radius:.4f} auc {auc:.3f}")


if __name__ == "__main__":
    main()
