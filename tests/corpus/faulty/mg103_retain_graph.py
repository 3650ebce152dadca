"""Two losses, each with retain_graph=True, though the second needs none."""

import torch
from torch import nn


class TwoHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(32, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU())
        self.depth = nn.Linear(128, 1)
        self.segment = nn.Linear(128, 5)

    def forward(self, x):
        h = self.trunk(x)
        return self.depth(h), self.segment(h)


model = TwoHeads()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(24):
    x = torch.randn(64, 32)
    depth, segment = model(x)
    depth_loss = nn.functional.l1_loss(depth.squeeze(1), torch.rand(64))
    segment_loss = nn.functional.cross_entropy(segment, torch.randint(5, (64,)))
    optimizer.zero_grad()
    depth_loss.backward(retain_graph=True)
    segment_loss.backward(retain_graph=True)  # !MG103 segment_loss
    optimizer.step()
