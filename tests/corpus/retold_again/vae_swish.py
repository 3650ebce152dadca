"""Convolution-free VAE on synthetic digits with a hand-written Swish activation."""

import torch
from torch import nn, optim
from torch.nn import functional as F


class SwishFn(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        sig = torch.sigmoid(x)
        out = x * sig
        ctx.sig = sig
        ctx.out = out  # !MG105 SwishFn ctx.out
        return out

    @staticmethod
    def backward(ctx, grad):
        return grad * (ctx.out + ctx.sig * (1 - ctx.out))


class Swish(nn.Module):
    def forward(self, x):
        return SwishFn.apply(x)


class VAE(nn.Module):
    def __init__(self, d=784, h=512, z=20):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(d, h), Swish(), nn.Linear(h, h), Swish())
        self.mu, self.logvar = nn.Linear(h, z), nn.Linear(h, z)
        self.dec = nn.Sequential(nn.Linear(z, h), Swish(), nn.Linear(h, d))

    def forward(self, x):
        h = self.enc(x)
        mu, logvar = self.mu(h), self.logvar(h)
        z = mu + torch.randn_like(mu) * (0.5 * logvar).exp()
        return self.dec(z), mu, logvar


def elbo(recon, x, mu, logvar):
    bce = F.binary_cross_entropy_with_logits(recon, x, reduction="sum")
    kld = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
    return (bce + kld) / x.size(0)


def digit_stream(steps, batch, templates):
    for _ in range(steps):
        idx = torch.randint(len(templates), (batch,))
        yield (templates[idx] + 0.3 * torch.randn(batch, 784) > 0.8).float()


def train_step(model, optimizer, x):
    optimizer.zero_grad()
    recon, mu, logvar = model(x)
    loss = elbo(recon, x, mu, logvar)
    loss.backward()
    optimizer.step()
    return loss.item()


def test(model, templates):
    model.eval()
    total = 0.0
    with torch.no_grad():
        for x in digit_stream(5, 128, templates):
            total += elbo(*_with_input(model(x), x)).item()
    model.train()
    return total / 5


def _with_input(outputs, x):
    recon, mu, logvar = outputs
    return recon, x, mu, logvar


if __name__ == "__main__":
    torch.manual_seed(0)
    templates = (torch.rand(10, 784) > 0.7).float()
    model = VAE()
    optimizer = optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(3):
        losses = [train_step(model, optimizer, x) for x in digit_stream(40, 128, templates)]
        print(f"epoch {epoch}: train {sum(losses) / len(losses):.2f}  test {test(model, templates):.2f}")
