"""Feature distillation from a wide to a narrow residual network (margin ReLU, connectors)."""

import math
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class Options:
    classes: int = 20
    batch: int = 16
    steps: int = 36
    epochs: int = 2
    lr: float = 0.05
    alpha: float = 1e-3


def conv_bn(cin, cout, stride=1):
    return nn.Sequential(nn.Conv2d(cin, cout, 3, stride, 1, bias=False), nn.BatchNorm2d(cout))


class WRN(nn.Module):
    def __init__(self, widths, classes):
        super().__init__()
        self.stem = conv_bn(3, widths[0])
        self.stages = nn.ModuleList(
            [nn.Sequential(conv_bn(a, b, 2), nn.ReLU(), conv_bn(b, b)) for a, b in zip(widths[:-1], widths[1:])]
        )
        self.widths = widths[1:]
        self.fc = nn.Linear(widths[-1], classes)

    def extract_feature(self, x):
        x = F.relu(self.stem(x))
        feats = []
        for stage in self.stages:
            x = stage(x)
            feats.append(x)
            x = F.relu(x)
        return feats, self.fc(x.mean((2, 3)))

    def get_bn_before_relu(self):
        return [s[-1][1] for s in self.stages]

    def forward(self, x):
        return self.extract_feature(x)[1]


def distillation_loss(source, target, margin):
    target = torch.max(target, margin)
    loss = F.mse_loss(source, target, reduction="none")
    return (loss * ((source > target) | (target > 0)).float()).sum()


def margin_from_bn(bn):
    out = []
    for s, m in zip(bn.weight.detach().abs().tolist(), bn.bias.detach().tolist()):
        cdf = 0.5 * (1 + math.erf(-m / (s + 1e-9) / math.sqrt(2)))
        out.append(-s * math.exp(-((m / (s + 1e-9)) ** 2) / 2) / math.sqrt(2 * math.pi) / max(cdf, 1e-3) + m)
    return torch.tensor(out)


class Distiller(nn.Module):
    def __init__(self, t_net, s_net):
        super().__init__()
        self.connectors = nn.ModuleList(
            [
                nn.Sequential(nn.Conv2d(s, t, 1, bias=False), nn.BatchNorm2d(t))
                for t, s in zip(t_net.widths, s_net.widths)
            ]
        )
        for i, bn in enumerate(t_net.get_bn_before_relu()):
            self.register_buffer(f"margin{i + 1}", margin_from_bn(bn)[None, :, None, None])
        self.t_net, self.s_net = t_net, s_net

    def forward(self, x):
        t_feats, t_out = self.t_net.extract_feature(x)  # !MG202 self.t_net
        s_feats, s_out = self.s_net.extract_feature(x)
        n = len(t_feats)
        loss_distill = 0
        for i in range(n):
            s_feat = self.connectors[i](s_feats[i])
            loss_distill = loss_distill + distillation_loss(
                s_feat, t_feats[i].detach(), getattr(self, f"margin{i + 1}")
            ) / 2 ** (n - i - 1)
        return s_out, loss_distill


class Textures:
    def __init__(self, opt):
        g = torch.Generator().manual_seed(0)
        self.base, self.opt = torch.randn(opt.classes, 3, 32, 32, generator=g), opt

    def batch(self):
        y = torch.randint(0, self.opt.classes, (self.opt.batch,))
        return self.base[y] + 0.8 * torch.randn(self.opt.batch, 3, 32, 32), y


def pretrain(net, data, steps):
    optimizer = torch.optim.SGD(net.parameters(), 0.05, momentum=0.9)
    net.train()
    for _ in range(steps):
        x, y = data.batch()
        F.cross_entropy(net(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()


def train_with_distill(d_net, data, opt):
    d_net.train()
    d_net.s_net.train()
    d_net.t_net.train()  # batch statistics for the teacher as well
    optimizer = torch.optim.SGD(
        [*d_net.s_net.parameters(), *d_net.connectors.parameters()],
        opt.lr,
        momentum=0.9,
        nesterov=True,
        weight_decay=5e-4,
    )
    for epoch in range(opt.epochs):
        train_loss = 0.0
        for _ in range(opt.steps):
            inputs, targets = data.batch()
            optimizer.zero_grad()
            outputs, loss_distill = d_net(inputs)
            loss = F.cross_entropy(outputs, targets) + opt.alpha * loss_distill / opt.batch
            loss.backward()
            optimizer.step()
            train_loss += loss.item()
        print(f"epoch {epoch + 1} train loss {train_loss / opt.steps:.3f}")


if __name__ == "__main__":
    torch.manual_seed(100)
    opt = Options()
    data = Textures(opt)
    teacher, student = WRN([16, 32, 64, 96], opt.classes), WRN([8, 16, 24, 32], opt.classes)
    pretrain(teacher, data, 30)
    train_with_distill(Distiller(teacher, student), data, opt)
