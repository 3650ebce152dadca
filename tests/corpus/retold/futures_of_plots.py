"""A thread pool draws curves; the futures are kept, and each holds what its task returned."""

from concurrent.futures import ThreadPoolExecutor

import torch
from torch import nn


def render(step, loss):
    return {"title": f"step {step}", "value": loss}


def main():
    futures = []
    net = nn.GRU(4, 16, batch_first=True)
    head = nn.Linear(16, 1)
    opt = torch.optim.RMSprop([*net.parameters(), *head.parameters()], lr=1e-3)
    with ThreadPoolExecutor(max_workers=1) as pool:
        for step in range(36):
            x = torch.randn(8, 10, 4)
            out, _ = net(x)
            loss = (head(out[:, -1]).squeeze(1) - x.sum((1, 2))).abs().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            futures.append(pool.submit(render, step, loss))  # !MG101 futures


main()
