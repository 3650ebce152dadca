"""Per-sample gradients by hooks: a probe on public data runs them without a backward, and nobody takes what they keep."""

import math
from functools import partial

import torch
from torch import nn
import torch.nn.functional as F

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
_samplers = {}


def register_grad_sampler(kind):
    def decorator(fn):
        _samplers[kind] = fn
        return fn

    return decorator


@register_grad_sampler(nn.Linear)
def linear_norms(layer, activations, backprops):
    # per-sample gradient norms without building the gradients (ghost norms)
    sq = activations.pow(2).sum(1) * backprops.pow(2).sum(1)
    if layer.bias is not None:
        sq = sq + backprops.pow(2).sum(1)
    return sq


class GradSampleModule(nn.Module):
    def __init__(self, m):
        super().__init__()
        self._module = m
        self.hooks_enabled = True
        self.autograd_grad_sample_hooks = []
        self.add_hooks()

    def forward(self, *args, **kwargs):
        return self._module(*args, **kwargs)

    def iterate_submodules(self):
        for m in self._module.modules():
            if type(m) in _samplers:
                yield m

    def add_hooks(self):
        for m in self.iterate_submodules():
            m.activations = []
            m.sample_sq_norm = None
            self.autograd_grad_sample_hooks.append(m.register_forward_hook(self.capture_activations_hook))
            self.autograd_grad_sample_hooks.append(
                m.register_full_backward_hook(partial(self.capture_backprops_hook, scale=1.0))
            )

    def capture_activations_hook(self, module, forward_input, _forward_output):
        if not module.training or not self.hooks_enabled:
            return
        module.activations.append(forward_input[0].detach())  # !MG301 net.2.activations

    def capture_backprops_hook(self, module, _forward_input, forward_output, scale):
        if not self.hooks_enabled:
            return
        backprops = forward_output[0].detach() * len(forward_output[0]) * scale
        activations = module.activations.pop()
        module.sample_sq_norm = _samplers[type(module)](module, activations, backprops)

    def per_sample_norms(self):
        return sum(m.sample_sq_norm for m in self.iterate_submodules()).sqrt()


class DPOptimizer:
    """Scales the mean gradient by the mean clip factor and adds noise (a rough, but quick form)."""

    def __init__(self, optimizer, module, max_grad_norm, noise):
        self.original_optimizer, self.module = optimizer, module
        self.max_grad_norm, self.noise = max_grad_norm, noise

    @property
    def params(self):
        return [p for g in self.original_optimizer.param_groups for p in g["params"]]

    def step(self):
        norms = self.module.per_sample_norms()
        factor = (self.max_grad_norm / (norms + 1e-6)).clamp(max=1.0).mean()
        for p in self.params:
            p.grad.mul_(factor).add_(
                torch.randn_like(p), alpha=self.noise * self.max_grad_norm / math.sqrt(len(norms)) * 0.01
            )
        self.original_optimizer.step()

    def zero_grad(self):
        self.original_optimizer.zero_grad()


class PublicProbe:
    """A small public batch: how far are we? No gradient needed, so under no_grad."""

    def __init__(self, x, y, every=1):
        self.x, self.y, self.every = x, y, every
        self.curve = []

    def __call__(self, model, step):
        if step % self.every:
            return
        with torch.no_grad():
            self.curve.append(F.cross_entropy(model(self.x), self.y).item())


def make_data(n, g, proto):
    y = torch.randint(0, 10, (n,), generator=g)
    return (proto[y] + torch.randn(n, 128, generator=g)).to(device), y.to(device)


def main(steps=90):
    torch.manual_seed(0)
    g = torch.Generator().manual_seed(5)
    proto = torch.randn(10, 128, generator=g)
    net = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
    model = GradSampleModule(net).to(device)
    optimizer = DPOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model, max_grad_norm=1.0, noise=1.1)
    probe = PublicProbe(*make_data(512, g, proto))
    model.train()
    for step in range(steps):
        probe(model, step)
        x, y = make_data(256, g, proto)
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 30 == 0:
            print(f"step {step} private loss {loss.item():.3f} public loss {probe.curve[-1]:.3f}")


if __name__ == "__main__":
    main()
