"""MAML-style initialisation for small PINNs: every task is an ODE u'' + w^2 u = 0 with another frequency w."""

import copy
import math

import torch
from torch import nn

INNER_LR = 0.01


class SmallPINN(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(1, width),
            nn.Tanh(),
            nn.Linear(width, width),
            nn.Tanh(),
            nn.Linear(width, width),
            nn.Tanh(),
            nn.Linear(width, 1),
        )

    def forward(self, x):
        return self.net(x)


class OscillatorTask:
    def __init__(self):
        self.w = 1.0 + 3.0 * torch.rand(1).item()
        self.phase = torch.rand(1).item() * math.pi

    def labelled(self, n):
        x = torch.rand(n, 1) * 2
        return x, torch.cos(self.w * x + self.phase)

    def physics(self, net, n):
        x = (torch.rand(n, 1) * 2).requires_grad_(True)
        u = net(x)
        (u_x,) = torch.autograd.grad(u.sum(), x, create_graph=True)
        (u_xx,) = torch.autograd.grad(u_x.sum(), x, create_graph=True)
        return (u_xx + self.w**2 * u).pow(2).mean()

    def loss(self, net, n_data=16, n_phys=64):
        x, y = self.labelled(n_data)
        return (net(x) - y).pow(2).mean() + 1e-2 * self.physics(net, n_phys)


def sensitivity(grads):
    """Curvature proxy reported next to the loss: norm of the support gradient."""
    return torch.sqrt(sum(g.pow(2).sum() for g in grads))


def adapt_and_score(meta, task):
    learner = copy.deepcopy(meta)
    learner.zero_grad()
    support = task.loss(learner)
    support.backward(create_graph=True)  # !MG104 -
    gnorm = sensitivity([p.grad for p in learner.parameters()]).item()
    with torch.no_grad():
        for p in learner.parameters():
            p -= INNER_LR * p.grad
    query = task.loss(learner)
    grads = torch.autograd.grad(query, list(learner.parameters()))
    return query.item(), gnorm, grads


def meta_step(meta, opt, tasks):
    opt.zero_grad()
    total = 0.0
    norms = 0.0
    for task in tasks:
        q, gnorm, grads = adapt_and_score(meta, task)
        total += q
        norms += gnorm
        for p, g in zip(meta.parameters(), grads):
            if p.grad is None:
                p.grad = g / len(tasks)
            else:
                p.grad.add_(g, alpha=1 / len(tasks))
    opt.step()
    return total / len(tasks), norms / len(tasks)


def finetune(meta, task, steps=20):
    net = copy.deepcopy(meta)
    opt = torch.optim.SGD(net.parameters(), lr=INNER_LR)
    for _ in range(steps):
        opt.zero_grad()
        loss = task.loss(net)
        loss.backward()
        opt.step()
    x, y = task.labelled(64)
    with torch.no_grad():
        return (net(x) - y).abs().mean().item()


if __name__ == "__main__":
    torch.manual_seed(0)
    meta = SmallPINN()
    meta_opt = torch.optim.Adam(meta.parameters(), lr=1e-3)
    for it in range(45):
        loss, gnorm = meta_step(meta, meta_opt, [OscillatorTask() for _ in range(4)])
        if it % 10 == 0:
            print(f"meta-iter {it:3d} query loss {loss:.4f} support |g| {gnorm:.3f}")
    print("fine-tuned mae on new tasks:", [round(finetune(meta, OscillatorTask()), 3) for _ in range(3)])
