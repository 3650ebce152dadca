"""PINN for viscous Burgers' equation, marched through time windows with LBFGS."""

import math

import torch
import torch.nn as nn

NU = 0.01 / math.pi


class MLP(nn.Module):
    def __init__(self, width=32, depth=3):
        super().__init__()
        dims = [2] + [width] * depth
        self.net = nn.Sequential(
            *[m for i, o in zip(dims, dims[1:]) for m in (nn.Linear(i, o), nn.Tanh())], nn.Linear(width, 1)
        )

    def forward(self, xt):
        return self.net(xt)


class WindowProblem:
    """Residual and initial-condition loss on one time window with its own collocation points."""

    def __init__(self, net, t0, t1, points=2000):
        self.net = net
        self.points = points
        self.candidates = torch.rand(150000, 2) * torch.tensor([2.0, t1 - t0]) + torch.tensor([-1.0, t0])
        self.interior = None
        self.reference = torch.cat([torch.linspace(-1, 1, 20000)[:, None], torch.full((20000, 1), t0)], 1)
        with torch.no_grad():
            self.start = -torch.sin(math.pi * self.reference[:, :1]) if t0 == 0 else net(self.reference)
        self.pick = torch.randint(len(self.reference), (256,))
        self.optimizer = torch.optim.LBFGS(net.parameters(), lr=0.5, max_iter=8, history_size=8)
        self.closure = self._build_closure()  # !MG306 WindowProblem.closure

    def resample(self):
        rows = torch.randint(len(self.candidates), (self.points,))
        self.interior = self.candidates[rows].requires_grad_(True)

    def residual(self):
        u = self.net(self.interior)
        du = torch.autograd.grad(u.sum(), self.interior, create_graph=True)[0]
        uxx = torch.autograd.grad(du[:, 0].sum(), self.interior, create_graph=True)[0][:, 0]
        return du[:, 1] + u.squeeze(1) * du[:, 0] - NU * uxx

    def _build_closure(self):
        def closure():
            self.optimizer.zero_grad()
            loss = self.residual().pow(2).mean()
            loss = loss + 10 * (self.net(self.reference[self.pick]) - self.start[self.pick]).pow(2).mean()
            loss.backward()
            return loss

        return closure

    def solve(self, iterations):
        for _ in range(iterations):
            self.resample()
            value = self.optimizer.step(self.closure).item()
        return value


def march(net, windows=24, horizon=0.6):
    dt = horizon / windows
    for k in range(windows):
        problem = WindowProblem(net, k * dt, (k + 1) * dt)
        loss = problem.solve(iterations=2)
        if k % 4 == 0:
            print(f"window {k:2d} t in [{k * dt:.2f}, {(k + 1) * dt:.2f}] loss {loss:.5f}")


if __name__ == "__main__":
    torch.manual_seed(0)
    march(MLP())
