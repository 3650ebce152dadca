# device: cpu
"""One row per sample and step, as dictionaries, for a table at the end."""

import torch
from torch import nn


def main():
    net = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 5))
    opt = torch.optim.Adam(net.parameters())
    rows = []
    for step in range(220):
        x, y = torch.randn(1500, 20), torch.randint(0, 5, (1500,))
        logits = net(x)
        losses = nn.functional.cross_entropy(logits, y, reduction="none")
        opt.zero_grad()
        losses.mean().backward()
        opt.step()
        for i, (value, p) in enumerate(zip(losses.tolist(), logits.softmax(1).tolist())):
            rows.append({"step": step, "sample": i, "loss": value, "probs": p})  # !MG701 rows
    print(len(rows))


main()
