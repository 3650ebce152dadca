"""Knowledge distillation of a keyword spotting model: wide teacher, tiny depthwise student."""

from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class Config:
    T: float = 4.0
    alpha: float = 0.7
    batch: int = 32
    steps: int = 60
    lr: float = 3e-3
    words: int = 12


def teacher_net(words):
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.Conv2d(32, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Linear(32 * 16, words),
    )


class Student(nn.Module):
    def __init__(self, words):
        super().__init__()
        self.stem = nn.Conv2d(1, 8, 3, 2, 1)
        self.dw = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.pw = nn.Conv2d(8, 16, 1)
        self.fc = nn.Linear(16 * 16, words)

    def forward(self, x):
        x = F.relu(self.stem(x))
        x = F.relu(self.pw(self.dw(x)))
        return self.fc(F.adaptive_avg_pool2d(x, 4).flatten(1))


def batches(cfg, n, seed):
    g = torch.Generator().manual_seed(seed)
    for _ in range(n):
        y = torch.randint(0, cfg.words, (cfg.batch,), generator=g)
        x = torch.randn(cfg.batch, 1, 40, 32, generator=g)
        for i, k in enumerate(y.tolist()):
            x[i, 0, 3 * k : 3 * k + 3] += 1.0
        yield x, y


def pretrain(teacher, cfg):
    opt = torch.optim.Adam(teacher.parameters(), lr=1e-3)
    for x, y in batches(cfg, 30, 1):
        opt.zero_grad()
        F.cross_entropy(teacher(x), y).backward()
        opt.step()
    opt.zero_grad()


def distill(teacher, student, cfg):
    teacher.eval()
    student.train()
    opt = torch.optim.SGD(student.parameters(), lr=cfg.lr, momentum=0.9)
    for step, (x, y) in enumerate(batches(cfg, cfg.steps, 2)):
        t_logits = teacher(x)  # !MG202 teacher
        s_logits = student(x)
        soft = (
            F.kl_div(F.log_softmax(s_logits / cfg.T, 1), F.softmax(t_logits.detach() / cfg.T, 1), reduction="batchmean")
            * cfg.T**2
        )
        loss = cfg.alpha * soft + (1 - cfg.alpha) * F.cross_entropy(s_logits, y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 20 == 19:
            agree = (t_logits.argmax(1) == s_logits.argmax(1)).float().mean()
            print("step %d loss %.3f agreement %.2f" % (step + 1, loss.item(), agree.item()))


if __name__ == "__main__":
    cfg = Config()
    torch.manual_seed(0)
    teacher, student = teacher_net(cfg.words), Student(cfg.words)
    pretrain(teacher, cfg)
    distill(teacher, student, cfg)
