import torch
from torch import nn

model = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(60):
    x = torch.rand(64, 1, requires_grad=True)
    u = model(x)
    slope = torch.autograd.grad(u.sum(), x, create_graph=True)[0]
    loss = (slope + u).square().mean() + (model(torch.zeros(1, 1)) - 1).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
model.eval()
for _ in range(10):
    x = torch.rand(16, 1, requires_grad=True)
    slope = torch.autograd.grad(model(x).sum(), x)[0]
    print(slope.abs().max().item())
