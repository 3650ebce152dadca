"""Second derivatives in eval mode that end where they should: series and power iteration cut, an unrolled step trained on."""

import torch
from torch import nn
from torch.nn import functional

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(24, 32), nn.Tanh(), nn.Linear(32, 3))
weights = list(net.parameters())
data, labels = torch.randn(320, 24), torch.randint(0, 3, (320,))


def product(vector, rows):
    loss = functional.cross_entropy(net(data[rows]), labels[rows])
    first = torch.autograd.grad(loss, weights, create_graph=True)
    inner = sum((a * b).sum() for a, b in zip(first, vector))
    return torch.autograd.grad(inner, weights, create_graph=True)


def inverse_product(vector, depth=12, damping=0.02, scale=20.0):
    estimate = [part.clone() for part in vector]
    for _ in range(depth):
        products = product(estimate, torch.randint(0, len(data), (16,)))
        estimate = [(v + (1 - damping) * e - p / scale).detach() for v, e, p in zip(vector, estimate, products)]
    return estimate


def sharpness(steps=12):
    vector = [torch.randn_like(weight) for weight in weights]
    for _ in range(steps):
        norm = torch.stack([part.norm() for part in vector]).norm()
        vector = [(part / norm).detach() for part in vector]
        vector = product(vector, slice(0, 64))
    return norm.item()


def tuned(rate, meta, steps=8):
    """The step's length is trained through eight unrolled steps of a copy of the weights."""
    fast = {name: weight for name, weight in net.named_parameters()}
    for _ in range(steps):
        rows = torch.randint(0, len(data), (16,))
        loss = functional.cross_entropy(torch.func.functional_call(net, fast, (data[rows],)), labels[rows])
        gradients = torch.autograd.grad(loss, list(fast.values()), create_graph=True)
        fast = {name: weight - rate.exp() * g for (name, weight), g in zip(fast.items(), gradients)}
    meta.zero_grad()
    outer = functional.cross_entropy(torch.func.functional_call(net, fast, (data,)), labels)
    outer.backward(inputs=[rate])
    meta.step()
    return outer.item()


optimizer = torch.optim.SGD(weights, 0.1)
for epoch in range(3):
    for rows in torch.randperm(320).split(32):
        optimizer.zero_grad()
        functional.cross_entropy(net(data[rows]), labels[rows]).backward()
        optimizer.step()

net.eval()
rate = torch.tensor(-3.0, requires_grad=True)
meta = torch.optim.Adam([rate], 0.1)
for number in range(4):
    loss = functional.cross_entropy(net(data[:1]), labels[:1])
    series = inverse_product([part.detach() for part in torch.autograd.grad(loss, weights)])
    print(number, sum(part.norm() for part in series).item(), sharpness(), tuned(rate, meta))
