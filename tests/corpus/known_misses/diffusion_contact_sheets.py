"""A small diffusion trainer whose train() keeps the samples of its last contact sheet through the steps that follow."""
# A known miss: a branch that runs once in many batches leaves the list; what each batch leaves is looked for, not that.

import os
import tempfile

import numpy as np
import torch
from torch import nn
import torch.nn.functional as F


def num_to_groups(num, divisor):
    groups, remainder = divmod(num, divisor)
    return [divisor] * groups + ([remainder] if remainder else [])


class Unet(nn.Module):
    def __init__(self, dim=24):
        super().__init__()
        self.time = nn.Embedding(50, dim)
        self.a = nn.Conv2d(3, dim, 3, padding=1)
        self.b = nn.Conv2d(dim, dim, 3, 2, 1)
        self.c = nn.ConvTranspose2d(dim, dim, 2, 2)
        self.o = nn.Conv2d(2 * dim, 3, 3, padding=1)

    def forward(self, x, t):
        h = F.silu(self.a(x) + self.time(t)[:, :, None, None])
        return self.o(torch.cat([h, F.silu(self.c(self.b(h)))], 1))


class GaussianDiffusion(nn.Module):
    def __init__(self, model, size, steps=50):
        super().__init__()
        self.model, self.size, self.steps = model, size, steps
        self.register_buffer("abar", torch.linspace(0.999, 0.01, steps))

    def forward(self, x):
        t = torch.randint(self.steps, (len(x),))
        n = torch.randn_like(x)
        a = self.abar[t][:, None, None, None]
        return F.mse_loss(self.model(a.sqrt() * x + (1 - a).sqrt() * n, t), n)

    @torch.no_grad()
    def sample(self, batch_size):
        x = torch.randn(batch_size, 3, self.size, self.size)
        for t in range(self.steps - 1, -1, -10):
            tt = torch.full((batch_size,), t)
            x = (x - (1 - self.abar[t]).sqrt() * self.model(x, tt)) / self.abar[t].sqrt().clamp_min(0.3)
            x = x.clamp(-1, 1)
        return F.interpolate(x, scale_factor=8, mode="bicubic")


class Trainer:
    def __init__(self, diffusion, folder, train_batch_size=40, num_steps=34, sample_every=20, num_samples=49):
        self.model, self.results = diffusion, folder
        self.batch_size, self.train_num_steps, self.every, self.num_samples = (
            train_batch_size,
            num_steps,
            sample_every,
            num_samples,
        )
        self.opt = torch.optim.Adam(diffusion.parameters(), 1e-3)
        self.g = torch.Generator().manual_seed(75)

    def next_batch(self):
        return torch.rand(self.batch_size, 3, self.model.size, self.model.size, generator=self.g) * 2 - 1

    def train(self):
        step = 0
        while step < self.train_num_steps:
            loss = self.model(self.next_batch())
            loss.backward()
            self.opt.step()
            self.opt.zero_grad()
            if step != 0 and step % self.every == 0:
                milestone = step // self.every
                batches = num_to_groups(self.num_samples, 16)
                all_images_list = [self.model.sample(n) for n in batches]  # !MG304 all_images_list
                sheet = np.concatenate([im[:, :, ::16, ::16].numpy() for im in all_images_list])
                np.save(os.path.join(self.results, f"sample-{milestone}.npy"), sheet)
                print(f"{step}: {loss.item():.4f} saved sample-{milestone}")
            step += 1
        print("training complete")


if __name__ == "__main__":
    torch.manual_seed(74)
    with tempfile.TemporaryDirectory() as d:
        Trainer(GaussianDiffusion(Unet(), 48), d).train()
