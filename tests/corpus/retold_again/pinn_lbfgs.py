"""A physics-informed network: Adam first, then LBFGS with closures; second derivatives of the output."""

import torch
from torch import nn

net = nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))


def residual(xt):
    xt = xt.clone().requires_grad_(True)
    u = net(xt)
    g = torch.autograd.grad(u.sum(), xt, create_graph=True)[0]
    uxx = torch.autograd.grad(g[:, 0].sum(), xt, create_graph=True)[0][:, 0]
    return g[:, 1] + u.squeeze(1) * g[:, 0] - 0.01 * uxx


def loss_of(points, bc):
    return residual(points).pow(2).mean() + (net(bc).squeeze(1) - torch.sin(bc[:, 0])).pow(2).mean()


history = []
adam = torch.optim.Adam(net.parameters(), 1e-3)
for i in range(40):
    loss = loss_of(torch.rand(512, 2), torch.rand(64, 2))
    adam.zero_grad()
    loss.backward()
    adam.step()
    history.append(loss.item())
points, bc = torch.rand(512, 2), torch.rand(64, 2)
lbfgs = torch.optim.LBFGS(net.parameters(), max_iter=5, history_size=10)


def closure():
    lbfgs.zero_grad()
    loss = loss_of(points, bc)
    loss.backward()
    return loss


for i in range(12):
    history.append(float(lbfgs.step(closure)))
# evaluating the residual wants gradients of the input, in eval mode
net.eval()
worst = max(residual(torch.rand(256, 2)).abs().max().item() for _ in range(10))
print(history[-1], worst)
