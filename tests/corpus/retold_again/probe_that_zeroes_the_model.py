"""A linear probe: the backbone is left out of the optimizer, and the whole model is zeroed in each step."""

import argparse
import torch
import torch.nn as nn

parser = argparse.ArgumentParser()
parser.add_argument("--iters", type=int, default=70)
parser.add_argument("--bs", type=int, default=8)
args = parser.parse_args([])
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def conv(i, o, s):
    return nn.Sequential(nn.Conv2d(i, o, 3, s, 1), nn.BatchNorm2d(o), nn.ReLU())


class Probe(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(conv(3, 16, 1), conv(16, 24, 2), conv(24, 32, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.head = nn.Linear(32, 7)

    def train(self, mode=True):
        super().train(mode)
        self.backbone.eval()
        return self

    def forward(self, x):
        feat = self.backbone(x)  # !MG202 self.backbone
        return self.head(feat)


net = Probe().to(device).train()
opt = torch.optim.SGD(net.head.parameters(), lr=0.1)
for i in range(args.iters):
    x = torch.rand(args.bs, 3, 32, 32, device=device)
    loss = nn.functional.cross_entropy(net(x), torch.randint(0, 7, (args.bs,), device=device))
    net.zero_grad()
    loss.backward()
    opt.step()
    if i % 10 == 0:
        print(i, loss.item())
