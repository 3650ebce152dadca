"""A physics-informed net that one call of LBFGS trains: its closure is evaluated hundreds of times in a single step."""

import torch
from torch import nn


class Burgers(nn.Module):
    def __init__(self, width: int = 96) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(2, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1)
        )

    def forward(self, t: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return self.net(torch.stack([t, x], dim=1)).squeeze(1)


def residual(model: Burgers, t: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    t, x = t.clone().requires_grad_(), x.clone().requires_grad_()
    u = model(t, x)
    u_t, u_x = torch.autograd.grad(u.sum(), (t, x), create_graph=True)
    (u_xx,) = torch.autograd.grad(u_x.sum(), x, create_graph=True)
    return u_t + u * u_x - 0.01 / torch.pi * u_xx


def main() -> None:
    torch.manual_seed(0)
    model = Burgers()
    t, x = torch.rand(2048), torch.rand(2048) * 2 - 1
    start = torch.rand(512) * 2 - 1
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=120, history_size=20, line_search_fn="strong_wolfe")
    history: list[float] = []

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        boundary = model(torch.zeros_like(start), start) + torch.sin(torch.pi * start)
        loss = residual(model, t, x).square().mean() + boundary.square().mean()
        loss.backward()
        history.append(loss.item())
        if len(history) % 50 == 0:
            print(f"evaluation {len(history)}: {history[-1]:.5f}")
        return loss

    optimizer.step(closure)
    print(f"{len(history)} evaluations, loss {history[-1]:.5f}")


main()
