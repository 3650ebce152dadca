"""Losses go into a queue for a plotting thread that was switched off."""

import queue

import torch
from torch import nn

plots = queue.Queue()


def train(net, optimiser, steps):
    for _ in range(steps):
        signal = torch.randn(8, 1, 64)
        denoised = net(signal + 0.1 * torch.randn_like(signal))
        loss = nn.functional.mse_loss(denoised, signal)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        plots.put(("loss", loss))  # !MG101 plots


net = nn.Sequential(nn.Conv1d(1, 8, 5, padding=2), nn.ReLU(), nn.Conv1d(8, 1, 5, padding=2))
train(net, torch.optim.Adam(net.parameters()), 30)
print(plots.qsize())
