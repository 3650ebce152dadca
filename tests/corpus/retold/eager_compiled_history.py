"""A compiled model, a plain list of losses."""

import torch
from torch import nn


def main():
    model = nn.Sequential(nn.Linear(12, 24), nn.GELU(), nn.Linear(24, 12))
    compiled = torch.compile(model, backend="eager")
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    history = []
    for step in range(30):
        x = torch.randn(8, 12)
        loss = nn.functional.mse_loss(compiled(x), x)
        opt.zero_grad()
        loss.backward()
        opt.step()
        history.append(loss)  # !MG101 history
    return history


main()
