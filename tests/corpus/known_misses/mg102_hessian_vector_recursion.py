# A known miss: seven products in one query, each with the graph of the last; a chain is told from ten on.
"""An inverse Hessian vector product by seven steps of a Neumann series, each with the graph of the step before.

In eval mode, and the function begins its series anew for every query: each product doubles what the next one runs through.
"""

import torch
from torch import nn
from torch.nn import functional

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(24, 32), nn.Tanh(), nn.Linear(32, 3))
weights = list(net.parameters())
data, labels = torch.randn(320, 24), torch.randint(0, 3, (320,))


def gradient_of(inputs, targets, *, differentiable):
    loss = functional.cross_entropy(net(inputs), targets)
    return torch.autograd.grad(loss, weights, create_graph=differentiable)


def inverse_product(query, answer, depth=7, damping=0.02, scale=20.0):
    vector = gradient_of(query, answer, differentiable=True)
    estimate = [part.clone() for part in vector]
    for step in range(depth):
        rows = torch.randint(0, len(data), (16,))
        first = gradient_of(data[rows], labels[rows], differentiable=True)
        inner = sum((a * b).sum() for a, b in zip(first, estimate))
        products = torch.autograd.grad(inner, weights, create_graph=True)
        estimate = [v + (1 - damping) * e - p / scale for v, e, p in zip(vector, estimate, products)]  # !MG102 estimate
    return [part.detach() for part in estimate]


optimizer = torch.optim.SGD(weights, 0.1)
for epoch in range(3):
    for rows in torch.randperm(320).split(32):
        optimizer.zero_grad()
        functional.cross_entropy(net(data[rows]), labels[rows]).backward()
        optimizer.step()

net.eval()
for number in range(1):
    estimate = inverse_product(data[number : number + 1], labels[number : number + 1])
    scores = []
    for row in range(4):
        gradients = gradient_of(data[row : row + 1], labels[row : row + 1], differentiable=False)
        scores.append(-sum((g * e).sum() for g, e in zip(gradients, estimate)).item() / len(data))
    print(number, max(scores))
