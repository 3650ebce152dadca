"""Knowledge distillation; the teacher is in eval mode but builds a graph in each step."""

import torch
import torch.nn.functional as F
from torch import nn


def mlp(width):
    return nn.Sequential(nn.Linear(20, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 5))


def distill(teacher, student, steps=30, T=4.0):
    optimizer = torch.optim.Adam(student.parameters(), lr=1e-3)
    teacher.eval()
    student.train()
    for _ in range(steps):
        x, y = torch.randn(32, 20), torch.randint(5, (32,))
        teacher_logits = teacher(x)  # !MG202 teacher
        student_logits = student(x)
        soft = F.kl_div(
            F.log_softmax(student_logits / T, 1), F.softmax(teacher_logits.detach() / T, 1), reduction="batchmean"
        )
        loss = 0.7 * T * T * soft + 0.3 * F.cross_entropy(student_logits, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


distill(mlp(128), mlp(16))
