# MG102 by batch 28: the recursion begins after 26.
# needs an allocator: its graphs are small beside the RAM.
# A known miss: no step comes, and that the value alone leaves the recursion, only reading the function tells.
"""Influence functions: the inverse Hessian vector product by stochastic recursion (LiSSA).

Retells pytorch_influence_functions issue 6 ("The gradient of h_estimate is not cut down"): since the gradient of
h_estimate is preserved over the recursion, the GPU memory grows with recursion_depth until it is out.
https://github.com/nimarb/pytorch_influence_functions/issues/6
"""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.autograd import grad

device = "cuda" if torch.cuda.is_available() else "cpu"


def sample_batch(bs=64):
    return torch.randn(bs, 400).to(device), torch.randint(0, 10, (bs,)).to(device)


def fit(model, steps=25):
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(steps):
        x, y = sample_batch()
        opt.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        opt.step()
    opt.zero_grad()
    return loss.item()


def grad_z(model, z, t):
    return grad(F.cross_entropy(model(z), t), list(model.parameters()))


def hvp(loss, params, v):
    first = grad(loss, params, create_graph=True)
    return grad(first, params, grad_outputs=[t.detach() for t in v], create_graph=True)


def s_test(model, z_test, t_test, damp=0.01, scale=25.0, recursion_depth=60):
    v = grad_z(model, z_test, t_test)
    h_estimate = [t.clone() for t in v]
    params = list(model.parameters())
    for i in range(recursion_depth):
        x, t = sample_batch()
        hv = hvp(F.cross_entropy(model(x), t), params, h_estimate)
        h_estimate = [_v + (1 - damp) * _h - _hv / scale for _v, _h, _hv in zip(v, h_estimate, hv)]  # !MG102 h_estimate
        if i % 20 == 0:
            print(f"recursion {i}: |h| {sum(h.norm() for h in h_estimate).item():.3f}")
    return [h.detach() for h in h_estimate]


def influence(model, s_test_vec, n=10):
    out = []
    for _ in range(n):
        g = grad_z(model, *sample_batch(1))
        out.append(-sum((a * b).sum() for a, b in zip(s_test_vec, g)).item() / n)
    return out


if __name__ == "__main__":
    torch.manual_seed(42)
    model = nn.Sequential(nn.Linear(400, 1024), nn.Tanh(), nn.Linear(1024, 10)).to(device)
    print("trained to", fit(model))
    scores = influence(model, s_test(model, *sample_batch(1)))
    print("most harmful", max(scores))
