"""Training in one file, the metric log in another."""

import torch
from metric_log import MetricLog
from torch import nn


def main():
    log = MetricLog()
    net = nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 2))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    for step in range(32):
        x, y = torch.randn(16, 10), torch.randint(2, (16,))
        loss = nn.functional.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        log.add("train/loss", loss)
    print(log.mean("train/loss"))


if __name__ == "__main__":
    main()
