# A generator does forward and backward of each micro-batch and yields the reconstruction; the caller lists them all.
# device: virtual:256MiB
import torch
from torch import nn


def micro_steps(model, parts):
    for x in parts:
        mean, logvar, back = model(x)
        kl = (mean.square() + logvar.exp() - logvar - 1).mean()
        ((back - x).square().mean() + 0.01 * kl).div(len(parts)).backward()
        yield back.sigmoid()


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc, self.dec = nn.Linear(1024, 32), nn.Linear(16, 1024)

    def forward(self, x):
        mean, logvar = self.enc(x).chunk(2, -1)
        return mean, logvar, self.dec(mean + logvar.mul(0.5).exp() * torch.randn_like(mean))


def train(model, optimizer, batch):
    pictures = list(micro_steps(model, batch.chunk(10)))  # !MG106 pictures
    optimizer.step()
    optimizer.zero_grad()
    return pictures[0].detach().mean().item(), len(pictures)


torch.manual_seed(0)
model = VAE()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(6):
    print(step, *train(model, optimizer, torch.rand(4000, 1024)))
