# device: cpu
"""Twelve log files stay open, one per fold; twenty batches of the workers are listed once and trained on for long."""

import tempfile

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

if __name__ == "__main__":
    logs = []
    loader = DataLoader(TensorDataset(torch.randn(320, 8), torch.randint(0, 2, (320,))), batch_size=16, num_workers=2)
    batches = list(loader)
    for fold in range(12):
        logs.append(tempfile.TemporaryFile("w"))
        net = nn.Linear(8, 2)
        opt = torch.optim.Adam(net.parameters())
        for x, y in batches:
            loss = nn.functional.cross_entropy(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            logs[-1].write(f"{loss.item()}\n")
