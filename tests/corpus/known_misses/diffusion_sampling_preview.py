# A known miss: the line within a method of the model that samples; the line that calls the method is named.
"""Conditional diffusion: "sampling from a trained model consumes significant memory ... it is helpful to add
x_i = x_i.detach() at the end of the loop in DDPM.sample". The previews drawn while training run the whole
reverse chain with a graph that nobody differentiates.
https://github.com/TeaPearce/Conditional_Diffusion_MNIST/issues/12
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

device = "cuda" if torch.cuda.is_available() else "cpu"


class Denoiser(nn.Module):
    def __init__(self, ch=16, classes=10, steps=20):
        super().__init__()
        self.inp = nn.Conv2d(1, ch, 3, padding=1)
        self.body = nn.Conv2d(ch, ch, 3, padding=1)
        self.out = nn.Conv2d(ch, 1, 3, padding=1)
        self.time = nn.Embedding(steps, ch)
        self.cls = nn.Embedding(classes, ch)

    def forward(self, x, c, t):
        h = F.gelu(self.inp(x) + (self.time(t) + self.cls(c))[:, :, None, None])
        return self.out(h + F.gelu(self.body(h)))


class DDPM(nn.Module):
    def __init__(self, steps=20):
        super().__init__()
        self.eps, self.steps = Denoiser(steps=steps), steps
        beta = torch.linspace(1e-3, 0.25, steps)
        self.register_buffer("beta", beta)
        self.register_buffer("abar", torch.cumprod(1 - beta, 0))

    def forward(self, x, c):
        t = torch.randint(0, self.steps, (x.shape[0],)).to(x.device)
        noise = torch.randn_like(x)
        a = self.abar[t][:, None, None, None]
        return F.mse_loss(self.eps(a.sqrt() * x + (1 - a).sqrt() * noise, c, t), noise)

    def sample(self, n, size):
        x_i = torch.randn(n, 1, size, size, device=self.beta.device)
        c_i = torch.arange(n, device=x_i.device) % 10
        for i in reversed(range(self.steps)):
            t_i = torch.full((n,), i, device=x_i.device)
            eps = self.eps(x_i, c_i, t_i)  # !MG201 DDPM
            x_i = (x_i - self.beta[i] / (1 - self.abar[i]).sqrt() * eps) / (1 - self.beta[i]).sqrt()
            if i > 0:
                x_i = x_i + self.beta[i].sqrt() * torch.randn_like(x_i)
        return x_i


def train_step(ddpm, optim, x, c):
    optim.zero_grad()
    loss = ddpm(x, c)
    loss.backward()
    optim.step()
    return loss.item()


def preview(ddpm):
    ddpm.eval()
    grid = ddpm.sample(20, 28).cpu().clamp(-1, 1)
    ddpm.train()
    return float(grid.mean())


torch.manual_seed(0)
ddpm = DDPM().to(device)
optim = torch.optim.Adam(ddpm.parameters(), lr=1e-3)
for epoch in range(4):
    for _ in range(20):
        loss = train_step(ddpm, optim, torch.randn(16, 1, 28, 28).to(device), torch.randint(0, 10, (16,)).to(device))
    print("epoch", epoch, "loss", loss, "mean grey", preview(ddpm))
