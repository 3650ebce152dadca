"""Few-shot adaptation on a copy of the model for each task: its gradients carry a graph, and the copy is dropped."""

import copy
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.func import functional_call

torch.manual_seed(0)


def make_learner(width=160):
    return nn.Sequential(nn.Linear(16, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1))


def sample_task(k=32):
    amp = torch.rand(1) * 3 + 0.5
    phase = torch.rand(1) * 3.1
    direction = F.normalize(torch.randn(16), dim=0)
    x = torch.randn(2 * k, 16)
    y = amp * torch.sin(x @ direction + phase)
    return x[:k], y[:k, None], x[k:], y[k:, None]


class MetaLearner:
    def __init__(self, inner_lr=0.02, outer_lr=1e-3):
        self.net = make_learner()
        self.inner_lr = inner_lr
        self.opt = torch.optim.Adam(self.net.parameters(), lr=outer_lr)

    def adapt_and_test(self, task):
        xs, ys, xq, yq = task
        learner = copy.deepcopy(self.net)
        loss = F.mse_loss(learner(xs), ys)
        loss.backward(create_graph=True)  # !MG104 -
        fast = {n: p - self.inner_lr * p.grad for n, p in learner.named_parameters()}
        query_loss = F.mse_loss(functional_call(learner, fast, (xq,)), yq)
        meta_grads = torch.autograd.grad(query_loss, list(learner.parameters()))
        return query_loss.item(), meta_grads

    def step(self, tasks):
        self.opt.zero_grad()
        total = 0.0
        for task in tasks:
            q, grads = self.adapt_and_test(task)
            for p, g in zip(self.net.parameters(), grads):
                p.grad = g / len(tasks) if p.grad is None else p.grad + g / len(tasks)
            total += q
        self.opt.step()
        return total / len(tasks)


meta = MetaLearner()
for it in range(40):
    value = meta.step([sample_task() for _ in range(3)])
    if it % 10 == 9:
        print(f"meta-iteration {it + 1}: query loss {value:.4f}")
