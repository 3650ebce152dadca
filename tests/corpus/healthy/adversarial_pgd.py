"""PGD adversarial training: the attack differentiates the input in eval mode."""

import torch
import torch.nn.functional as F
from torch import nn

model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 5))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def pgd(x, y, eps=0.1, alpha=0.03, steps=4):
    model.eval()
    delta = torch.zeros_like(x, requires_grad=True)
    for _ in range(steps):
        loss = F.cross_entropy(model(x + delta), y)
        (grad,) = torch.autograd.grad(loss, [delta])
        delta = (delta + alpha * grad.sign()).clamp(-eps, eps).detach().requires_grad_(True)
    model.train()
    return (x + delta).detach()


robust = []
for i in range(15):
    x, y = torch.rand(8, 1, 8, 8), torch.randint(5, (8,))
    adv = pgd(x, y)
    out = model(adv)
    optimizer.zero_grad()
    F.cross_entropy(out, y).backward()
    optimizer.step()
    robust.append((out.argmax(1) == y).float().mean().item())
