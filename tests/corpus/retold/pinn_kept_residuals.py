"""A net for the heat equation, trained by one long step of LBFGS; its residuals are kept for a plot at the end."""

import torch
from torch import nn


class HeatNet:
    def __init__(self) -> None:
        self.net = nn.Sequential(nn.Linear(2, 128), nn.Tanh(), nn.Linear(128, 128), nn.Tanh(), nn.Linear(128, 1))
        self.points = torch.rand(4096, 2)
        self.residuals: list[torch.Tensor] = []
        self.iteration = 0
        self.optimizer = torch.optim.LBFGS(self.net.parameters(), max_iter=100, line_search_fn="strong_wolfe")

    def pde(self) -> torch.Tensor:
        points = self.points.clone().requires_grad_(True)
        u = self.net(points)
        gradients = torch.autograd.grad(u.sum(), points, create_graph=True)[0]
        return gradients[:, 0] - gradients[:, 1] - torch.sin(points[:, 0])

    def loss_func(self) -> torch.Tensor:
        self.optimizer.zero_grad()
        residual = self.pde()
        self.residuals.append(residual)  # !MG101 HeatNet.residuals
        loss = residual.square().mean()
        loss.backward()
        self.iteration += 1
        if self.iteration % 20 == 0:
            print(f"iteration {self.iteration}, loss {loss.item():.5f}")
        return loss

    def train(self) -> None:
        self.net.train()
        self.optimizer.step(self.loss_func)


torch.manual_seed(0)
model = HeatNet()
model.train()
print([f"{float(residual.abs().max().detach()):.3f}" for residual in model.residuals[::20]])
