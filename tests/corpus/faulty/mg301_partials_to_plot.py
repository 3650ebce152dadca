# device: virtual:48MiB
"""What shall be plotted at the end is remembered as partials, each with its images."""

import functools

import torch
from torch import nn


def plot(images, title):
    print(title, images.mean().item())


def main():
    todo = []
    auto = nn.Sequential(nn.Linear(784, 32), nn.ReLU(), nn.Linear(32, 784))
    optimizer = torch.optim.Adam(auto.parameters())
    for step in range(300):
        images = torch.rand(32, 784)
        recon = auto(images)
        loss = (recon - images).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        todo.append(functools.partial(plot, recon.detach(), f"step {step}"))  # !MG301 todo
    for job in todo[:2]:
        job()


main()
