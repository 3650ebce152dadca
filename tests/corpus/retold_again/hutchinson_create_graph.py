"""A second-order optimizer (Hutchinson's diagonal) as its readme says: backward(create_graph=True), then step()."""

import torch
import torch.nn.functional as F
from torch import nn


class DiagHessian(torch.optim.Optimizer):
    def __init__(self, params, lr=0.05):
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self):
        params = [p for g in self.param_groups for p in g["params"] if p.grad is not None]
        zs = [torch.randint_like(p, 2) * 2 - 1 for p in params]
        with torch.enable_grad():
            hz = torch.autograd.grad([p.grad for p in params], params, grad_outputs=zs, retain_graph=True)
        for p, h, z in zip(params, hz, zs):
            p.addcdiv_(p.grad, (h * z).abs().add(1.0), value=-self.param_groups[0]["lr"])


class Learner(nn.Module):
    def __init__(self):
        super().__init__()
        self.l1, self.l2, self.l3 = nn.Linear(64, 256), nn.Linear(256, 256), nn.Linear(256, 5)

    def forward(self, x):
        return self.l3(torch.tanh(self.l2(torch.tanh(self.l1(x)))))


learner = Learner()
optimizer = DiagHessian(learner.parameters())
for step in range(30):
    x, y = torch.randn(128, 64), torch.randint(0, 5, (128,))
    optimizer.zero_grad()
    loss = F.cross_entropy(learner(x), y)
    loss.backward(create_graph=True)  # !MG104 -
    optimizer.step()
