"""Diffusion denoiser MLP fine tuned with a parameter-free (D-adaptive) optimizer."""

import math

import torch
import torch.nn as nn


class ProdigyLite(torch.optim.Optimizer):
    def __init__(self, params, lr=1.0, betas=(0.9, 0.999), d0=1e-6, slice_p=11, eps=1e-8):
        super().__init__(params, dict(lr=lr, betas=betas, d=d0, d_num=0.0, slice_p=slice_p, eps=eps, k=0))

    @torch.no_grad()
    def step(self, closure=None):
        group = self.param_groups[0]
        b1, b2 = group["betas"]
        b3, d, k = math.sqrt(b2), group["d"], group["slice_p"]
        num, den = 0.0, 0.0
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["s"] = torch.zeros_like(p.flatten()[::k])
                    state["p0"] = p.detach().clone().flatten()[::k]  # !MG302 ProdigyLite.state
                    state["exp_avg_sq"] = torch.zeros_like(p)
                sg = p.grad.flatten()[::k]
                num += (sg @ (state["p0"] - p.flatten()[::k])).item() * d
                state["exp_avg_sq"].mul_(b2).addcmul_(p.grad, p.grad, value=(1 - b2) * d * d)
                state["s"].mul_(b3).add_(sg, alpha=d * d)
                den += state["s"].abs().sum().item()
        head = self.param_groups[0]
        head["d_num"] = head["d_num"] * b3 + num
        head["d"] = max(d, min(head["d_num"] / max(den, 1e-12), d * 1.2, 1e-3) if den else d, d * 1.05)
        head["d"] = min(head["d"], 1e-3)
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    p.addcdiv_(
                        p.grad,
                        self.state[p]["exp_avg_sq"].sqrt().add_(d * group["eps"] + 1e-12),
                        value=-d * d * group["lr"],
                    )


class Denoiser(nn.Module):
    def __init__(self, d=768):
        super().__init__()
        self.t = nn.Embedding(100, d)
        self.layers = nn.ModuleList([nn.Linear(d, d) for _ in range(5)])

    def forward(self, x, t):
        x = x + self.t(t)
        for l in self.layers:
            x = x + torch.nn.functional.silu(l(x))
        return x


torch.manual_seed(22)
model = Denoiser()
opt = ProdigyLite(model.parameters())
abar = torch.linspace(0.999, 0.02, 100)
for step in range(60):
    x0 = torch.randn(32, 768) * 0.5
    t = torch.randint(100, (32,))
    noise = torch.randn_like(x0)
    xt = abar[t].sqrt()[:, None] * x0 + (1 - abar[t]).sqrt()[:, None] * noise
    loss = (model(xt, t) - noise).pow(2).mean()
    opt.zero_grad(set_to_none=True)
    loss.backward()
    opt.step()
    if step % 20 == 0:
        print("step", step, "loss", round(loss.item(), 4), "d", opt.param_groups[0]["d"])
