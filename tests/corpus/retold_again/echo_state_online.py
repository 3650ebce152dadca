# device: virtual:256MiB
"""Online anomaly scoring of a sensor stream: auto-encoder for the readings, echo-state reservoir for the context."""

import argparse
import math

import torch
import torch.nn as nn
import torch.nn.functional as F


def sensor_stream(n_batches, streams, dim, seed=0):
    g = torch.Generator().manual_seed(seed)
    mix = torch.randn(4, dim, generator=g)
    for k in range(n_batches):
        phase = torch.tensor([math.sin(0.1 * k * (i + 1)) for i in range(4)])
        yield phase @ mix + 0.1 * torch.randn(streams, dim, generator=g)


class Reservoir(nn.Module):
    def __init__(self, n_in, size, leak=0.3, radius=0.9):
        super().__init__()
        w = torch.randn(size, size) * (torch.rand(size, size) < 0.1)
        self.register_buffer("w_res", w * radius / (size * 0.1) ** 0.5)
        self.register_buffer("w_in", torch.randn(n_in, size) * 0.5)
        self.leak = leak
        self.state = None

    def forward(self, z):
        if self.state is None:
            self.state = z.new_zeros(z.shape[0], self.w_res.shape[0])
        drive = torch.tanh(z @ self.w_in + self.state @ self.w_res)
        self.state = (1 - self.leak) * self.state + self.leak * drive  # !MG102 Reservoir.state
        return self.state


class StreamModel(nn.Module):
    def __init__(self, dim, latent, size):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(dim, 64), nn.GELU(), nn.Linear(64, latent))
        self.decoder = nn.Sequential(nn.Linear(latent, 64), nn.GELU(), nn.Linear(64, dim))
        self.reservoir = Reservoir(latent, size)
        self.readout = nn.Linear(size, latent)

    def observe(self, x):
        z = self.encoder(x)
        recon = F.mse_loss(self.decoder(z), x)
        context = self.reservoir(z)
        return z, recon, context


class OnlineTrainer:
    def __init__(self, model, lr):
        self.model = model
        self.opt = torch.optim.AdamW(model.parameters(), lr=lr)
        self.expected = None

    def step(self, x):
        z, recon, context = self.model.observe(x)
        loss = recon
        # the forecast made with the previous context is compared with the new reading
        if self.expected is not None:
            ctx, target = self.expected, z.detach()
            loss = loss + F.mse_loss(self.model.readout(ctx), target)
        self.expected = context.detach()
        loss.backward()
        self.opt.step()
        self.opt.zero_grad()
        return loss.item(), recon.item()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--batches", type=int, default=300)
    ap.add_argument("--streams", type=int, default=64)
    ap.add_argument("--reservoir", type=int, default=256)
    cfg = ap.parse_args()
    torch.manual_seed(3)
    trainer = OnlineTrainer(StreamModel(32, 8, cfg.reservoir), lr=2e-3)
    worst = 0.0
    for i, x in enumerate(sensor_stream(cfg.batches, cfg.streams, 32)):
        loss, recon = trainer.step(x)
        worst = max(worst, recon) if i > 50 else 0.0
        if i % 50 == 0:
            print(f"reading {i:4d} loss {loss:.4f} reconstruction {recon:.4f} worst {worst:.4f}")


if __name__ == "__main__":
    main()
