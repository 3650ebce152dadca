"""Outputs of the epoch are concatenated batch by batch to compute an AUC at the end."""

import torch
from torch import nn


def train_one_epoch(model, loader, optimizer):
    model.train()
    all_outputs = torch.tensor([])
    all_targets = torch.tensor([])
    for data, target in loader:
        optimizer.zero_grad()
        output = model(data).squeeze(1)
        loss = nn.functional.binary_cross_entropy_with_logits(output, target)
        loss.backward()
        optimizer.step()
        all_outputs = torch.cat([all_outputs, output])  # !MG101 all_outputs
        all_targets = torch.cat([all_targets, target])
    order = all_outputs.detach().argsort()
    return all_targets[order]


net = nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 1))
opt = torch.optim.AdamW(net.parameters())
for _ in range(2):
    train_one_epoch(net, [(torch.randn(8, 12), torch.randint(2, (8,)).float()) for _ in range(25)], opt)
