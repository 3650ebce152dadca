"""A soft dice score is accumulated in a global variable by a helper."""

import torch
import torch.nn as nn

dice_total = 0


def soft_dice(prob, mask, eps=1e-5):
    inter = (prob * mask).sum((1, 2, 3))
    return ((2 * inter + eps) / (prob.sum((1, 2, 3)) + mask.sum((1, 2, 3)) + eps)).mean()


def log_dice(prob, mask):
    global dice_total
    dice_total = dice_total + soft_dice(prob, mask)  # !MG101 dice_total


unet = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 1, 3, padding=1), nn.Sigmoid())
adam = torch.optim.Adam(unet.parameters(), lr=1e-3)
for n in range(1, 31):
    scan, mask = torch.rand(2, 1, 24, 24), (torch.rand(2, 1, 24, 24) > 0.7).float()
    prob = unet(scan)
    loss = nn.functional.binary_cross_entropy(prob, mask)
    adam.zero_grad()
    loss.backward()
    adam.step()
    log_dice(prob, mask)
    if n % 10 == 0:
        print(n, dice_total.item() / n)
