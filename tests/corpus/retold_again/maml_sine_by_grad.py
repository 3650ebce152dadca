"""MAML on sinusoid regression, second-order, functional inner loop."""

import argparse
import math

import torch
from torch import nn
from torch.func import functional_call
import torch.nn.functional as F


def build(hidden):
    return nn.Sequential(nn.Linear(1, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, 1))


class SineTask:
    def __init__(self):
        self.amp = 0.5 + 2 * torch.rand(1)
        self.phase = math.pi * torch.rand(1)

    def draw(self, n):
        x = 10 * torch.rand(n, 1) - 5
        return x, self.amp * torch.sin(x + self.phase)


class MAML:
    def __init__(self, model, inner_lr, inner_steps):
        self.model = model
        self.inner_lr, self.inner_steps = inner_lr, inner_steps
        self.opt = torch.optim.Adam(model.parameters(), lr=1e-3)
        self.history = []

    def adapt(self, x, y, create_graph=True):
        fast = dict(self.model.named_parameters())
        for _ in range(self.inner_steps):
            loss = F.mse_loss(functional_call(self.model, fast, (x,)), y)
            grads = torch.autograd.grad(loss, tuple(fast.values()), create_graph=create_graph)
            fast = {k: p - self.inner_lr * g for (k, p), g in zip(fast.items(), grads)}
        return fast

    def meta_step(self, tasks, shots):
        meta_loss = 0
        for task in tasks:
            fast = self.adapt(*task.draw(shots))
            x, y = task.draw(shots)
            meta_loss = meta_loss + F.mse_loss(functional_call(self.model, fast, (x,)), y) / len(tasks)
        meta_loss.backward()
        self.opt.step()
        self.opt.zero_grad()
        self.history.append(meta_loss.item())

    def evaluate(self, task, shots):
        fast = self.adapt(*task.draw(shots), create_graph=False)
        with torch.no_grad():
            x, y = task.draw(200)
            return F.mse_loss(functional_call(self.model, fast, (x,)), y).item()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--iters", type=int, default=150)
    ap.add_argument("--tasks", type=int, default=4)
    ap.add_argument("--shots", type=int, default=64)
    args = ap.parse_args()
    torch.manual_seed(0)
    maml = MAML(build(128), inner_lr=0.02, inner_steps=2)
    for it in range(args.iters):
        maml.meta_step([SineTask() for _ in range(args.tasks)], args.shots)
        if (it + 1) % 30 == 0:
            recent = sum(maml.history[-30:]) / 30
            print(f"iter {it + 1} meta loss {recent:.4f} adapted {maml.evaluate(SineTask(), args.shots):.4f}")


if __name__ == "__main__":
    main()
