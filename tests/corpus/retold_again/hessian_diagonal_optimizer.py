"""An optimizer with a Hutchinson estimate of the curvature needs a graph of the gradients, in .grad itself."""

import torch
from torch import nn


class Curvature(torch.optim.Optimizer):
    def __init__(self, params, lr=0.05, beta=0.9):
        super().__init__(params, dict(lr=lr, beta=beta))

    def step(self, closure=None):
        params = [p for g in self.param_groups for p in g["params"] if p.grad is not None]
        zs = [torch.randint_like(p, 2) * 2 - 1 for p in params]
        hvs = torch.autograd.grad([p.grad for p in params], params, grad_outputs=zs)
        with torch.no_grad():
            for p, z, hv in zip(params, zs, hvs):
                state = self.state[p]
                diagonal = (z * hv).abs()
                state["d"] = state["d"] * 0.9 + diagonal * 0.1 if "d" in state else diagonal
                p -= self.defaults["lr"] * p.grad / (state["d"] + 1e-2)


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(12, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
optimizer = Curvature(model.parameters())
for it in range(30):
    x = torch.randn(64, 12)
    loss = (model(x) - x.prod(1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward(create_graph=True)  # !MG104 -
    optimizer.step()
