# device: virtual:256MiB
"""Noisy student: each round makes pseudo labels for a pool, kept on the device until the next round replaces them."""

import torch
from torch import nn

pool = torch.randn(3200, 64)


def make():
    return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 6))


@torch.no_grad()
def label(model):
    model.eval()
    out = []
    for x in pool.split(100):
        out.append(model(x).softmax(-1))
    return torch.cat(out)


student, soft = make(), torch.full((3200, 6), 1 / 6)
for r in range(4):
    student = make()
    opt = torch.optim.Adam(student.parameters(), 1e-3)
    for i in torch.randperm(3200).split(100):
        loss = -(soft[i] * student(pool[i]).log_softmax(-1)).sum(1).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    soft = label(student)
