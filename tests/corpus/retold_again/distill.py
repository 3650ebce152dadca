# device: virtual:256MiB
"""Knowledge distillation: the big teacher runs with gradients on; its logits are detached only afterwards."""

import torch
import torch.nn.functional as F
from torch import nn


def net(width, depth):
    layers = [nn.Linear(64, width), nn.ReLU()]
    for _ in range(depth):
        layers += [nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(width, 10))


class Distiller:
    def __init__(self, student, teacher, T=4.0, alpha=0.7):
        self.student, self.teacher, self.T, self.alpha = student, teacher, T, alpha
        self.opt = torch.optim.Adam(student.parameters(), 1e-3)
        self.teacher.eval()

    def kd(self, s, t):
        return F.kl_div(F.log_softmax(s / self.T, -1), F.softmax(t / self.T, -1), reduction="batchmean") * self.T**2

    def fit_one(self, x, y):
        self.student.train()
        t = self.teacher(x)  # !MG202 self.teacher
        s = self.student(x)
        loss = self.alpha * self.kd(s, t.detach()) + (1 - self.alpha) * F.cross_entropy(s, y)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        return loss.item()


d = Distiller(net(128, 1), net(512, 4))
for i in range(40):
    d.fit_one(torch.randn(512, 64), torch.randint(0, 10, (512,)))
