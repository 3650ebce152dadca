"""Deep ensemble: five members are trained one after another, each is kept with its training history."""

import torch
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"
x = torch.randn(512, 64, device=device)
y = x[:, :1] * 2 + torch.randn(512, 1, device=device) * 0.1
members, traces = [], []
for m in range(5):
    torch.manual_seed(m)
    net = nn.Sequential(nn.Linear(64, 400), nn.Tanh(), nn.Linear(400, 400), nn.Tanh(), nn.Linear(400, 1)).to(device)
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    trace = []
    for step in range(24):
        loss = (net(x) - y).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        trace.append(loss)  # !MG101 trace
    members.append(net)
    traces.append(trace)
    print(m, trace[-1].item())
with torch.no_grad():
    print(torch.stack([net(x) for net in members]).std(0).mean().item())
