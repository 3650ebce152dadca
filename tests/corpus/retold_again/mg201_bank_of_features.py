"""kNN accuracy of a contrastive encoder after each epoch; features of the training set stay on the GPU."""

# MG201 by batch 10: its graphs stay until all of the bank is there.
import torch
from torch import nn
import torch.nn.functional as F

device = "cuda" if torch.cuda.is_available() else "cpu"
imgs, labels = torch.randn(384, 3, 32, 32), torch.randint(0, 5, (384,))
enc = nn.Sequential(
    nn.Conv2d(3, 48, 3, 2, 1),
    nn.ReLU(),
    nn.Conv2d(48, 96, 3, 2, 1),
    nn.ReLU(),
    nn.AdaptiveAvgPool2d(1),
    nn.Flatten(),
    nn.Linear(96, 128),
).to(device)
opt = torch.optim.SGD(enc.parameters(), lr=0.1)
for epoch in range(3):
    enc.train()
    for i in range(0, 384, 32):
        v = imgs[i : i + 32].to(device)
        a, b = F.normalize(enc(v + 0.1 * torch.randn_like(v)), dim=1), F.normalize(enc(v.flip(-1)), dim=1)
        loss = F.cross_entropy(a @ b.t() / 0.2, torch.arange(32, device=device))
        opt.zero_grad()
        loss.backward()
        opt.step()
    enc.eval()
    bank = torch.cat([enc(imgs[i : i + 32].to(device)) for i in range(0, 384, 32)])  # !MG201 Sequential
    sim = F.normalize(bank, dim=1) @ F.normalize(bank, dim=1).t()
    sim.fill_diagonal_(-1)
    print(epoch, (labels[sim.argmax(1).cpu()] == labels).float().mean().item())
