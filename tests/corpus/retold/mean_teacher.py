"""Mean teacher: the teacher's forward builds a graph, the consistency loss detaches it."""

import copy

import torch
from torch import nn
from torch.nn import functional as F


def make():
    return nn.Sequential(nn.Linear(32, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 10))


student = make()
teacher = copy.deepcopy(student)
opt = torch.optim.SGD(student.parameters(), lr=0.05)
for it in range(30):
    labelled, target = torch.randn(16, 32), torch.randint(10, (16,))
    unlabelled = torch.randn(48, 32)
    s = student(torch.cat([labelled, unlabelled]))
    t = teacher(unlabelled)  # !MG202 teacher
    consistency = F.mse_loss(s[16:].softmax(1), t.softmax(1).detach())
    loss = F.cross_entropy(s[:16], target) + consistency
    opt.zero_grad()
    loss.backward()
    opt.step()
    with torch.no_grad():
        for p_t, p_s in zip(teacher.parameters(), student.parameters()):
            p_t.mul_(0.99).add_(p_s, alpha=0.01)
