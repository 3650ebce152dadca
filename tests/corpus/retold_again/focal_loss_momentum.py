"""A loss module with a running normaliser, smoothed over the batches and differentiable by accident."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class NormalizedFocalLoss(nn.Module):
    def __init__(self, gamma=2.0, momentum=0.95):
        super().__init__()
        self.gamma, self.momentum = gamma, momentum
        self.register_buffer("scale", torch.ones(()))

    def forward(self, logits, target):
        p = torch.sigmoid(logits)
        pt = torch.where(target > 0, p, 1 - p)
        w = (1 - pt) ** self.gamma
        loss = (w * F.binary_cross_entropy_with_logits(logits, target, reduction="none")).sum()
        self.scale = self.momentum * self.scale + (1 - self.momentum) * w.sum()  # !MG101 NormalizedFocalLoss.scale
        return loss / self.scale.detach()


segmenter = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(True), nn.Conv2d(8, 1, 1))
criterion = NormalizedFocalLoss()
opt = torch.optim.Adam(segmenter.parameters(), lr=5e-4)
for i in range(30):
    image, mask = torch.rand(2, 3, 32, 32), (torch.rand(2, 1, 32, 32) > 0.8).float()
    opt.zero_grad()
    criterion(segmenter(image), mask).backward()
    opt.step()
