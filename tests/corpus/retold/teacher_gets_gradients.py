"""Distillation without detach: the teacher is in eval mode, and backward runs into it; nothing ever steps its weights."""

import torch
import torch.nn.functional as F
from torch import nn


class MLP(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(40, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.head = nn.Linear(width, 10)

    def forward(self, x):
        return self.head(self.body(x))


def kd_loss(student_logits, teacher_logits, T=4.0):
    p = F.log_softmax(student_logits / T, dim=1)
    q = F.softmax(teacher_logits / T, dim=1)
    return F.kl_div(p, q, reduction="batchmean") * T * T


def main():
    teacher, student = MLP(256), MLP(32)
    teacher.eval()
    optimizer = torch.optim.Adam(student.parameters(), lr=1e-3)
    for _ in range(30):
        x, y = torch.randn(32, 40), torch.randint(10, (32,))
        teacher_logits = teacher(x)  # !MG202 teacher
        student_logits = student(x)
        loss = kd_loss(student_logits, teacher_logits) + F.cross_entropy(student_logits, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


main()
