"""Knowledge distillation: a wide pretrained CNN teaches a thin one (temperature 4)."""

import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser(description="KD")
parser.add_argument("--T", type=float, default=4.0)
parser.add_argument("--alpha", type=float, default=0.7)
parser.add_argument("--steps", type=int, default=60)
parser.add_argument("--batch-size", type=int, default=32)
parser.add_argument("--pretrain-steps", type=int, default=15)
args = parser.parse_args()

torch.manual_seed(0)


def make_cnn(width):
    return nn.Sequential(
        nn.Conv2d(3, width, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(width, width, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(width, 2 * width, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(2 * width, 10),
    )


def batch(n):
    y = torch.randint(0, 10, (n,))
    x = 0.5 * torch.randn(n, 3, 24, 24) + (y.float() / 10)[:, None, None, None]
    return x, y


def loss_fn_kd(outputs, labels, teacher_outputs):
    soft = F.kl_div(
        F.log_softmax(outputs / args.T, dim=1), F.softmax(teacher_outputs / args.T, dim=1), reduction="batchmean"
    )
    return soft * (args.alpha * args.T * args.T) + F.cross_entropy(outputs, labels) * (1 - args.alpha)


teacher = make_cnn(24)
t_opt = torch.optim.Adam(teacher.parameters(), lr=2e-3)
for _ in range(args.pretrain_steps):
    x, y = batch(args.batch_size)
    l = F.cross_entropy(teacher(x), y)
    l.backward()
    t_opt.step()
    t_opt.zero_grad()
del t_opt, l
print("teacher ready")

student = make_cnn(8)
optimizer = torch.optim.Adam(student.parameters(), lr=2e-3)


def train_kd():
    student.train()
    teacher.eval()
    avg, right = 0.0, 0
    for step in range(args.steps):
        x, y = batch(args.batch_size)
        optimizer.zero_grad()
        teacher_out = teacher(x).detach()  # !MG202 teacher
        out = student(x)
        loss = loss_fn_kd(out, y, teacher_out)
        loss.backward()
        optimizer.step()
        avg += loss.item()
        right += (out.argmax(1) == y).sum().item()
        if step % 15 == 14:
            print("step %3d loss %.4f acc %.3f" % (step + 1, avg / 15, right / (15 * args.batch_size)))
            avg, right = 0.0, 0


train_kd()
