"""Few-shot adaptation by hand; the adapted weights of each task are kept to look at them later."""

import torch
from torch.nn.functional import linear, mse_loss

theta = {
    "w1": torch.randn(40, 1).mul(0.3).requires_grad_(),
    "b1": torch.zeros(40).requires_grad_(),
    "w2": torch.randn(1, 40).mul(0.3).requires_grad_(),
    "b2": torch.zeros(1).requires_grad_(),
}
meta = torch.optim.Adam(theta.values(), lr=1e-3)


def f(w, x):
    return linear(torch.relu(linear(x, w["w1"], w["b1"])), w["w2"], w["b2"])


def adapt(w, x, y, steps=2, lr=0.05):
    for _ in range(steps):
        grads = torch.autograd.grad(mse_loss(f(w, x), y), list(w.values()), create_graph=True)
        w = {k: v - lr * g for (k, v), g in zip(w.items(), grads)}
    return w


adapted = {}
for outer in range(18):
    meta.zero_grad()
    total = 0.0
    for task in range(3):
        amplitude, phase = torch.rand(1) * 4 + 1, torch.rand(1) * 3
        xs, xq = torch.rand(10, 1) * 10 - 5, torch.rand(10, 1) * 10 - 5
        fast = adapt(theta, xs, amplitude * torch.sin(xs + phase))
        total = total + mse_loss(f(fast, xq), amplitude * torch.sin(xq + phase))
        adapted[outer, task] = fast  # !MG101 adapted
    (total / 3).backward()
    meta.step()
