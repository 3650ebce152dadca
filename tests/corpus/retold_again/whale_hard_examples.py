"""Whale-flank classifier with online hard example replay (competition baseline, synthetic crops)."""

import heapq
import itertools
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class CFG:
    seed = 42
    classes = 12
    size = 64
    bs = 48
    steps_per_epoch = 45
    epochs = 3
    lr = 2e-3
    pool_size = 96
    replay = 8


def seed_everything(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


seed_everything(CFG.seed)
PROTO = torch.randn(CFG.classes, 3, 8, 8)


def sample_batch(n):
    y = torch.randint(0, CFG.classes, (n,))
    x = F.interpolate(PROTO[y], size=CFG.size, mode="bilinear", align_corners=False)
    return x + 1.5 * torch.randn_like(x), y


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 16, 3, 2, 1),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, 2, 1),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.Conv2d(32, 64, 3, 2, 1),
            nn.BatchNorm2d(64),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
        )
        self.drop = nn.Dropout(0.2)
        self.fc = nn.Linear(64, CFG.classes)

    def forward(self, x):
        return self.fc(self.drop(self.body(x)))


class HardPool:
    """Keeps the examples with the highest loss seen so far."""

    def __init__(self, size):
        self.size = size
        self.heap = []
        self.tick = itertools.count()

    def offer(self, x, y, losses, k=4):
        top = losses.topk(k).indices.tolist()
        for i in top:
            item = (losses[i].item(), next(self.tick), x[i], int(y[i]))
            if len(self.heap) < self.size:
                heapq.heappush(self.heap, item)  # !MG302 HardPool.heap
            else:
                heapq.heappushpop(self.heap, item)

    def decay(self, factor=0.995):
        self.heap = [(s * factor, t, x, y) for s, t, x, y in self.heap]

    def draw(self, k):
        picked = random.sample(self.heap, k)
        return torch.stack([p[2] for p in picked]), torch.tensor([p[3] for p in picked])


def train_step(model, opt, sched, pool):
    x, y = sample_batch(CFG.bs)
    n_new = len(x)
    if len(pool.heap) >= CFG.replay:
        rx, ry = pool.draw(CFG.replay)
        xb, yb = torch.cat([x, rx]), torch.cat([y, ry])
    else:
        xb, yb = x, y
    opt.zero_grad()
    losses = F.cross_entropy(model(xb), yb, reduction="none")
    losses.mean().backward()
    opt.step()
    sched.step()
    pool.offer(x, y, losses.detach()[:n_new])
    pool.decay()
    return losses.mean().item()


@torch.no_grad()
def score(model, n=6):
    model.eval()
    hits = 0
    for _ in range(n):
        x, y = sample_batch(CFG.bs)
        hits += (model(x).argmax(1) == y).sum().item()
    model.train()
    return hits / (n * CFG.bs)


model = Net()
opt = torch.optim.AdamW(model.parameters(), lr=CFG.lr)
sched = torch.optim.lr_scheduler.OneCycleLR(opt, CFG.lr, total_steps=CFG.epochs * CFG.steps_per_epoch)
pool = HardPool(CFG.pool_size)
for epoch in range(CFG.epochs):
    running = 0.0
    for _ in range(CFG.steps_per_epoch):
        running += train_step(model, opt, sched, pool)
    hardest = max(pool.heap)[0]
    print(f"[{epoch}] loss {running / CFG.steps_per_epoch:.4f} acc {score(model):.4f} hardest {hardest:.3f}")
