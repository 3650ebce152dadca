"""Minimising with Hessian information: the warning that backward() with create_graph=True makes a reference cycle between the
parameter and its gradient is printed, and repeated minimisations end in OutOfMemoryError.  Here: assimilation of initial
states, one minimisation for each observation window.
https://github.com/rfeinman/pytorch-minimize/issues/29
"""

import warnings

import torch
import torch.nn as nn

warnings.filterwarnings("ignore", message="Using backward")
device = "cuda" if torch.cuda.is_available() else "cpu"


class Forecast(nn.Module):
    def __init__(self, n=256):
        super().__init__()
        self.lin = nn.Linear(n, n)

    def forward(self, x):
        for _ in range(3):
            x = x + 0.1 * torch.tanh(self.lin(x))
        return x


model = Forecast().to(device)
opt = torch.optim.Adam(model.parameters(), 1e-3)


def assimilate(obs, background):
    """One damped step with the diagonal of the curvature (Hutchinson)."""
    x = background.clone().requires_grad_()
    cost = ((model(x) - obs) ** 2).sum() + 0.1 * ((x - background) ** 2).sum()
    cost.backward(create_graph=True)  # !MG104 x
    v = torch.randint_like(x, 2) * 2 - 1
    (hv,) = torch.autograd.grad((x.grad * v).sum(), x, retain_graph=True)
    step = x.grad.detach() / ((hv * v).abs() + 1)
    return (x - step).detach()


for window in range(70):
    truth = torch.randn(256, 256).to(device)
    with torch.no_grad():
        obs = model(truth) + 0.05 * torch.randn(256, 256).to(device)
    analysis = assimilate(obs, truth + 0.3 * torch.randn(256, 256).to(device))
    opt.zero_grad()
    loss = ((model(analysis) - obs) ** 2).mean()
    loss.backward()
    opt.step()
print("done, last loss", loss.item())
