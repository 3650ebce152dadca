"""Flat script: features are extracted first, then a head is trained."""

import torch
from torch import nn
import torch.nn.functional as F

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)
images = torch.randn(512, 3, 64, 64, device=device)
backbone = nn.Sequential(nn.Conv2d(3, 32, 3, stride=2, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten()).to(
    device
)
with torch.no_grad():
    maps = backbone[:2](images)  # !MG304 maps, images
    feats = backbone[2:](maps)
labels = torch.randint(0, 10, (512,), device=device)
head = nn.Sequential(nn.Linear(512, 4096), nn.ReLU(), nn.Linear(4096, 2048), nn.ReLU(), nn.Linear(2048, 10)).to(device)
opt = torch.optim.Adam(head.parameters(), lr=1e-3)
for epoch in range(3):
    for i in range(0, 512, 64):
        opt.zero_grad()
        logits = head(feats[i : i + 64])
        loss = F.cross_entropy(logits, labels[i : i + 64])
        loss.backward()
        opt.step()
print(loss.item())
