"""neuromancer PR 292 (physics-informed learning): the Trainer had two memory leaks from one source, "we're not
detaching the grad graphs from the metrics before we store them".  Retold for a Burgers PINN: the solver hands all
its terms to a history object, and that keeps the fields with their graphs.
https://github.com/pnnl/neuromancer/pull/292
"""

from collections import defaultdict
from dataclasses import dataclass

import torch
import torch.nn as nn

device = "cuda" if torch.cuda.is_available() else "cpu"


@dataclass
class BurgersConfig:
    nu: float = 0.01 / 3.14159
    n_colloc: int = 32000
    n_bound: int = 500
    width: int = 12
    lr: float = 1e-3
    iterations: int = 150
    report_every: int = 40


class Field(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.a = nn.Linear(2, width)
        self.b = nn.Linear(width, width)
        self.c = nn.Linear(width, 1)

    def forward(self, t, x):
        h = torch.tanh(self.a(torch.cat([t, x], 1)))
        return self.c(torch.tanh(self.b(h)))


class History:
    """Everything that may be plotted after the run."""

    def __init__(self):
        self.scalars = defaultdict(list)
        self.fields = defaultdict(list)

    def scalar(self, name, value):
        self.scalars[name].append(float(value))

    def field(self, name, value):
        self.fields[name].append(value)  # !MG101 History.fields

    def last(self, name):
        return self.scalars[name][-1]


def gradient(y, x):
    return torch.autograd.grad(y, x, torch.ones_like(y), create_graph=True)[0]


class BurgersSolver:
    def __init__(self, cfg):
        self.cfg = cfg
        self.net = Field(cfg.width).to(device)
        self.opt = torch.optim.Adam(self.net.parameters(), lr=cfg.lr)
        self.history = History()

    def sample(self, n):
        t = torch.rand(n, 1, device=device).requires_grad_(True)
        x = (2 * torch.rand(n, 1, device=device) - 1).requires_grad_(True)
        return t, x

    def pde_loss(self):
        t, x = self.sample(self.cfg.n_colloc)
        u = self.net(t, x)
        u_t, u_x = gradient(u, t), gradient(u, x)
        u_xx = gradient(u_x, x)
        residual = u_t + u * u_x - self.cfg.nu * u_xx
        for name, value in (("u", u), ("u_t", u_t), ("u_x", u_x), ("u_xx", u_xx), ("residual", residual)):
            self.history.field(name, value)
        return residual.pow(2).mean()

    def boundary_loss(self):
        t, x = self.sample(self.cfg.n_bound)
        start = self.net(torch.zeros_like(t), x) + torch.sin(3.14159 * x)
        wall = self.net(t, torch.ones_like(x))
        return start.pow(2).mean() + wall.pow(2).mean()

    def step(self):
        self.opt.zero_grad()
        pde, bc = self.pde_loss(), self.boundary_loss()
        (pde + bc).backward()
        self.opt.step()
        self.history.scalar("pde", pde.detach())
        self.history.scalar("bc", bc.detach())

    def solve(self):
        for it in range(self.cfg.iterations):
            self.step()
            if it % self.cfg.report_every == 0:
                print(f"{it:4d} pde {self.history.last('pde'):.4f} bc {self.history.last('bc'):.4f}")


if __name__ == "__main__":
    torch.manual_seed(0)
    BurgersSolver(BurgersConfig()).solve()
