"""Latent diffusion: a frozen encoder gives the latents, a denoiser is trained on them.

Retells the remark "delete full outputs to free memory: del outputs" in openbrowser-ai pull request 63: of what the
frozen model gives back only a small part is used, but the whole output with all hidden states stays in a local of the
step while the denoiser runs forward and backward.
https://github.com/billy-enrizky/openbrowser-ai/pull/63
"""

from dataclasses import dataclass
from typing import List

import torch
import torch.nn as nn
import torch.nn.functional as F

device = "cuda" if torch.cuda.is_available() else "cpu"


@dataclass
class EncoderOutput:
    latent: torch.Tensor
    hidden_states: List[torch.Tensor]


class FrozenEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        chans = [(3, 16, 1), (16, 16, 1), (16, 16, 1), (16, 16, 2), (16, 24, 2)]
        self.layers = nn.ModuleList(nn.Conv2d(i, o, 3, s, 1) for i, o, s in chans)
        self.to_latent = nn.Conv2d(24, 4, 1)

    def forward(self, x):
        states = []
        for layer in self.layers:
            x = F.silu(layer(x))
            states.append(x)
        return EncoderOutput(self.to_latent(x), states)


class Denoiser(nn.Module):
    def __init__(self, ch=64, steps=100):
        super().__init__()
        self.temb = nn.Embedding(steps, ch)
        self.inp = nn.Conv2d(4, ch, 3, padding=1)
        self.mid = nn.ModuleList(nn.Conv2d(ch, ch, 3, padding=1) for _ in range(2))
        self.out = nn.Conv2d(ch, 4, 3, padding=1)

    def forward(self, z, t):
        h = self.inp(z) + self.temb(t)[:, :, None, None]
        for conv in self.mid:
            h = h + conv(F.silu(F.group_norm(h, 8)))
        return self.out(h)


class Trainer:
    def __init__(self):
        self.vae = FrozenEncoder().to(device).eval().requires_grad_(False)
        self.unet = Denoiser().to(device)
        self.opt = torch.optim.AdamW(self.unet.parameters(), lr=1e-4)
        self.abar = torch.cumprod(1 - torch.linspace(1e-4, 2e-2, 100), 0).to(device)

    def train_step(self, images):
        with torch.no_grad():
            enc = self.vae(images)  # !MG304 enc
            z = enc.latent * 0.18
        t = torch.randint(0, 100, (z.size(0),)).to(device)
        noise = torch.randn_like(z)
        a = self.abar[t].view(-1, 1, 1, 1)
        loss = F.mse_loss(self.unet(a.sqrt() * z + (1 - a).sqrt() * noise, t), noise)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        return loss.item()


if __name__ == "__main__":
    trainer = Trainer()
    for step in range(30):
        value = trainer.train_step(torch.rand(8, 3, 160, 160).to(device))
        if step % 10 == 0:
            print(f"step {step} loss {value:.4f}")
