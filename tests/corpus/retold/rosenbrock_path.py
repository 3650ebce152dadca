"""Gradient descent on the Rosenbrock function, with the path kept as numbers and detached points."""

import torch

xy = torch.tensor([-1.0, 1.5], requires_grad=True)
path, points = [], []
for i in range(80):
    f = (1 - xy[0]) ** 2 + 100 * (xy[1] - xy[0] ** 2) ** 2
    f.backward()
    with torch.no_grad():
        xy -= 1e-4 * xy.grad
    xy.grad = None
    path.append(f.item())
    points.append(xy.detach().clone())
