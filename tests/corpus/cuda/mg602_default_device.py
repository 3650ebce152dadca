"""Every rank says "cuda" and none calls set_device: this one is rank 1 and lies on the first card."""

import os

os.environ.update(LOCAL_RANK="1", RANK="1", WORLD_SIZE="2")
import torch
from torch import nn


class Ranker(nn.Module):
    def __init__(self):
        super().__init__()
        self.left, self.right = nn.Linear(256, 1024), nn.Linear(1024, 1)

    def forward(self, x):
        return self.right(torch.relu(self.left(x)))


device = "cuda" if torch.cuda.is_available() else "cpu"
model = Ranker().to(device)
opt = torch.optim.AdamW(model.parameters())
for step in range(40):
    x = torch.randn(128, 256).to(device)
    loss = model(x).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
# !MG602 cuda:0
