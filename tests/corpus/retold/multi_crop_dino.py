"""DINO as it should be: teacher under no_grad, a centre that moves without history, many crops."""

import copy

import torch
from torch import nn

student = nn.Sequential(nn.Linear(24, 48), nn.GELU(), nn.Linear(48, 16))
teacher = copy.deepcopy(student).requires_grad_(False)
opt = torch.optim.AdamW(student.parameters(), 1e-3)
centre = torch.zeros(16)
for step in range(30):
    x = torch.randn(16, 24)
    crops = [x + 0.1 * torch.randn_like(x) for _ in range(6)]
    with torch.no_grad():
        t = [((teacher(c) - centre) / 0.04).softmax(1) for c in crops[:2]]
        centre = 0.9 * centre + 0.1 * torch.cat([teacher(c) for c in crops[:2]]).mean(0)
    s = [(student(c) / 0.1).log_softmax(1) for c in crops]
    loss = sum(-(a * b).sum(1).mean() for i, a in enumerate(t) for j, b in enumerate(s) if i != j) / 10
    opt.zero_grad()
    loss.backward()
    opt.step()
    with torch.no_grad():
        for p, q in zip(teacher.parameters(), student.parameters()):
            p.lerp_(q, 0.01)
