"""EMA, Lookahead and mean teacher together: three copies of the weights, all wanted, all made once."""

import copy
import torch
from torch import nn

student = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
teacher = copy.deepcopy(student).requires_grad_(False).eval()
slow = [p.detach().clone() for p in student.parameters()]
opt = torch.optim.Adam(student.parameters(), 1e-3)
for step in range(120):
    x, u, y = torch.randn(32, 64), torch.randn(64, 64), torch.randint(0, 10, (32,))
    with torch.no_grad():
        target = teacher(u).softmax(-1)
    loss = nn.functional.cross_entropy(student(x), y) + (student(u).softmax(-1) - target).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    with torch.no_grad():
        for t, s in zip(teacher.parameters(), student.parameters()):
            t.lerp_(s, 0.01)
        if step % 6 == 5:
            for w, s in zip(slow, student.parameters()):
                w.lerp_(s, 0.5)
                s.copy_(w)
