import torch
from torch import nn

generator = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8))
discriminator = nn.Sequential(nn.Linear(8, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
g_optimizer = torch.optim.Adam(generator.parameters())
d_optimizer = torch.optim.Adam(discriminator.parameters())
bce = nn.BCEWithLogitsLoss()
losses = []
for step in range(60):
    real = torch.randn(16, 8) + 2
    fake = generator(torch.randn(16, 16))
    d_loss = bce(discriminator(real), torch.ones(16, 1)) + bce(discriminator(fake.detach()), torch.zeros(16, 1))
    d_optimizer.zero_grad()
    d_loss.backward()
    d_optimizer.step()
    g_loss = bce(discriminator(fake), torch.ones(16, 1))
    g_optimizer.zero_grad()
    g_loss.backward()
    g_optimizer.step()
    losses.append((d_loss.item(), g_loss.detach()))
