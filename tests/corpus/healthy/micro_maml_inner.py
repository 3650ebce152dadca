# MAML: fast weights of each task, one meta-loss over all tasks.
import torch
from torch import nn
from torch.func import functional_call

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(1, 64), nn.Tanh(), nn.Linear(64, 1))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
for step in range(8):
    meta = []
    for _ in range(4):
        x = torch.rand(20, 1)
        y = torch.sin(6 * x)
        fast = dict(net.named_parameters())
        for _ in range(2):
            loss = (functional_call(net, fast, (x,)) - y).square().mean()
            gradients = torch.autograd.grad(loss, list(fast.values()), create_graph=True)
            fast = {name: weight - 0.1 * g for (name, weight), g in zip(fast.items(), gradients)}
        meta.append((functional_call(net, fast, (x,)) - y).square().mean())
    torch.stack(meta).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
