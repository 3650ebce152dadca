"""Knowledge distillation of a keyword-spotting student from an ensemble of teachers."""

import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F


class TCNet(nn.Module):
    """Small temporal conv net on log-mel frames."""

    def __init__(self, mels=40, width=64, depth=3, classes=12):
        super().__init__()
        layers, cin = [], mels
        for _ in range(depth):
            layers += [nn.Conv1d(cin, width, 5, padding=2), nn.BatchNorm1d(width), nn.ReLU()]
            cin = width
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        return self.head(self.body(x).mean(-1))


def make_batch(protos, n):
    y = torch.randint(0, len(protos), (n,))
    return protos[y] + torch.randn(n, *protos.shape[1:]), y


def fit_teacher(teacher, protos, steps):
    opt = torch.optim.Adam(teacher.parameters(), lr=2e-3)
    for _ in range(steps):
        opt.zero_grad()
        x, y = make_batch(protos, 32)
        F.cross_entropy(teacher(x), y).backward()
        opt.step()
    opt.zero_grad()
    return teacher.eval()


class Distiller:
    def __init__(self, student, teachers, temperature=3.0, alpha=0.7, lr=2e-3):
        self.student, self.teachers = student, teachers
        self.temperature, self.alpha = temperature, alpha
        self.opt = torch.optim.Adam(student.parameters(), lr=lr)

    def soft_targets(self, x):
        votes = []
        for teacher in self.teachers:
            logits = teacher(x)  # !MG202 teacher
            votes.append(F.softmax(logits / self.temperature, dim=-1))
        return torch.stack(votes).mean(0).detach()

    def step(self, x, y):
        self.student.train()
        self.opt.zero_grad()
        soft = self.soft_targets(x)
        logits = self.student(x)
        kd = F.kl_div(F.log_softmax(logits / self.temperature, -1), soft, reduction="batchmean") * self.temperature**2
        loss = self.alpha * kd + (1 - self.alpha) * F.cross_entropy(logits, y)
        loss.backward()
        self.opt.step()
        return loss.item()

    @torch.inference_mode()
    def accuracy(self, protos, batches=4):
        self.student.eval()
        hits = 0
        for _ in range(batches):
            x, y = make_batch(protos, 64)
            hits += (self.student(x).argmax(-1) == y).sum().item()
        return hits / (64 * batches)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--teachers", type=int, default=3)
    ap.add_argument("--steps", type=int, default=50)
    args = ap.parse_args()
    torch.manual_seed(0)
    protos = 0.3 * torch.randn(12, 40, 98)
    teachers = [fit_teacher(TCNet(width=96, depth=4), protos, 12) for _ in range(args.teachers)]
    distiller = Distiller(TCNet(width=32, depth=2), teachers)
    for step in range(args.steps):
        loss = distiller.step(*make_batch(protos, 32))
        if step % 10 == 0:
            print(f"step {step} loss {loss:.3f} acc {distiller.accuracy(protos):.3f}")


if __name__ == "__main__":
    main()
