"""A closure gathers the smoothed loss."""

import torch
from torch import nn


def make_tracker(beta=0.98):
    smooth = None

    def track(value):
        nonlocal smooth
        smooth = value if smooth is None else beta * smooth + (1 - beta) * value  # !MG101 smooth
        return smooth

    return track


def train_one_epoch(model, optimizer, batches):
    track = make_tracker()
    for x in batches:
        reconstruction = model(x)
        loss = (reconstruction - x).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        track(loss)


autoencoder = nn.Sequential(nn.Linear(24, 6), nn.ReLU(), nn.Linear(6, 24))
train_one_epoch(autoencoder, torch.optim.Adam(autoencoder.parameters()), [torch.randn(10, 24) for _ in range(28)])
