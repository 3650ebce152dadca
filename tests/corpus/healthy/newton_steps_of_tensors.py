# device: virtual:96MiB
"""A network of bare tensors trained by Hessian-vector products: each derivative with a graph is taken again."""

import torch
import torch.nn.functional as F

weights = [(torch.randn(256, 16) * 0.1).requires_grad_(), (torch.randn(1, 256) * 0.1).requires_grad_()]


def loss_of(x, y):
    return F.mse_loss(F.linear(torch.tanh(F.linear(x, weights[0])), weights[1]), y)


def conjugate_step(x, y, rounds=3):
    slopes = torch.autograd.grad(loss_of(x, y), weights, create_graph=True)
    direction = [slope.detach().clone() for slope in slopes]
    for _ in range(rounds):
        product = sum((slope * part).sum() for slope, part in zip(slopes, direction))
        curved = torch.autograd.grad(product, weights, retain_graph=True)
        direction = [part - 0.1 * curve for part, curve in zip(direction, curved)]
    return direction


for step in range(40):
    x = torch.randn(2048, 16)
    y = x.sum(1, keepdim=True).sin()
    direction = conjugate_step(x, y)
    loss_of(x, y).backward()
    with torch.no_grad():
        for weight, part in zip(weights, direction):
            weight -= 0.05 * (weight.grad + part)
            weight.grad = None
