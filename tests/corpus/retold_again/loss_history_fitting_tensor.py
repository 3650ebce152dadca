"""Fitting a low-rank decomposition to an image: factors without modules, a history of losses."""

import torch

target = torch.rand(60, 60)
U = torch.randn(60, 5, requires_grad=True)
V = torch.randn(60, 5, requires_grad=True)


def optimize(tensors, loss_function, iterations=60, lr=1e-2):
    optimizer = torch.optim.Adam(tensors, lr=lr)
    loss_history = []
    for _ in range(iterations):
        optimizer.zero_grad()
        loss = loss_function(*tensors)
        loss.backward()
        optimizer.step()
        loss_history.append(loss)  # !MG101 loss_history
    return loss_history


history = optimize([U, V], lambda u, v: (u @ v.T - target).pow(2).mean())
print(history[0].item(), history[-1].item())
