"""Physics-informed network for the viscous Burgers equation u_t + u u_x = nu u_xx."""

import math

import torch
from torch import nn

NU = 0.01 / math.pi


class Surrogate(nn.Module):
    def __init__(self, width=24, depth=3):
        super().__init__()
        layers, d = [], 2
        for _ in range(depth):
            layers += [nn.Linear(d, width), nn.Tanh()]
            d = width
        self.body = nn.Sequential(*layers, nn.Linear(d, 1))

    def forward(self, xt):
        return self.body(xt)


def residual(net, xt):
    u = net(xt)
    u.backward(torch.ones_like(u), inputs=[xt], create_graph=True)  # !MG104 xt
    u_x, u_t = xt.grad[:, :1], xt.grad[:, 1:]
    u_xx = torch.autograd.grad(u_x.sum(), xt, create_graph=True)[0][:, :1]
    return u_t + u * u_x - NU * u_xx


def initial_loss(net, n):
    x = torch.rand(n, 1) * 2 - 1
    u = net(torch.cat([x, torch.zeros_like(x)], 1))
    return (u + torch.sin(math.pi * x)).pow(2).mean()


def boundary_loss(net, n):
    t = torch.rand(n, 1)
    side = torch.where(torch.rand(n, 1) < 0.5, -1.0, 1.0)
    return net(torch.cat([side, t], 1)).pow(2).mean()


def train_step(net, opt, n_interior):
    opt.zero_grad(set_to_none=True)
    xt = torch.rand(n_interior, 2) * torch.tensor([2.0, 1.0]) - torch.tensor([1.0, 0.0])
    xt.requires_grad_(True)
    pde = residual(net, xt).pow(2).mean()
    ic, bc = initial_loss(net, 512), boundary_loss(net, 512)
    loss = pde + 10 * ic + bc
    loss.backward(inputs=list(net.parameters()))
    opt.step()
    return pde.item(), ic.item(), bc.item()


@torch.no_grad()
def probe(net):
    x = torch.linspace(-1, 1, 200).unsqueeze(1)
    u = net(torch.cat([x, torch.full_like(x, 0.5)], 1))
    return u.min().item(), u.max().item()


def main(steps=150, n_interior=8192):
    torch.manual_seed(0)
    net = Surrogate()
    opt = torch.optim.Adam(net.parameters(), lr=2e-3)
    sched = torch.optim.lr_scheduler.StepLR(opt, 60, 0.5)
    for step in range(steps):
        pde, ic, bc = train_step(net, opt, n_interior)
        sched.step()
        if step % 25 == 0:
            lo, hi = probe(net)
            print(f"{step:4d} pde {pde:.2e} ic {ic:.3f} bc {bc:.3f} u(.5) in [{lo:.2f}, {hi:.2f}]")


if __name__ == "__main__":
    main()
