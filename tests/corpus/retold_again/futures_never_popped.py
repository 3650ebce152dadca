"""Batches are prepared ahead by a thread; the futures stay in the list, results and all."""

from concurrent.futures import ThreadPoolExecutor
import torch
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def prepare(step):
    g = torch.Generator().manual_seed(step)
    x = torch.randn(24, 3, 24, 24, generator=g)
    return (x - x.mean()) / x.std(), torch.randint(0, 5, (24,), generator=g)


class Conv(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten())
        self.head = nn.Linear(128, 5)

    def forward(self, x):
        return self.head(self.body(x))


def train(steps=200, ahead=3):
    model = Conv().to(DEVICE)
    opt = torch.optim.SGD(model.parameters(), lr=0.02)
    pending = []
    with ThreadPoolExecutor(1) as pool:
        for step in range(ahead):
            pending.append(pool.submit(prepare, step))
        for step in range(steps):
            x, y = pending[step].result()
            pending.append(pool.submit(prepare, step + ahead))  # !MG301 pending
            loss = nn.functional.cross_entropy(model(x.to(DEVICE)), y.to(DEVICE))
            opt.zero_grad()
            loss.backward()
            opt.step()
            if step % 50 == 0:
                print(step, float(loss))


train()
