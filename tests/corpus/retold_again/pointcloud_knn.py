"""EdgeConv segmentation of point clouds with the neighbourhood found in input space."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class EdgeConv(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(2 * i, o), nn.LeakyReLU(0.2))

    def forward(self, x, idx):
        b, n, k = idx.shape
        nb = x[torch.arange(b).view(b, 1, 1), idx]
        x = x.unsqueeze(2).expand_as(nb)
        return self.mlp(torch.cat([x, nb - x], -1)).amax(2)


class DGCNNSeg(nn.Module):
    def __init__(self, classes=8):
        super().__init__()
        self.c1, self.c2 = EdgeConv(3, 16), EdgeConv(16, 24)
        self.out = nn.Linear(40, classes)

    def forward(self, pts, idx):
        a = self.c1(pts, idx)
        b = self.c2(a, idx)
        return self.out(torch.cat([a, b], -1))


def rotate(pts):
    t = torch.rand(()) * 6.2832
    r = torch.tensor([[t.cos(), -t.sin(), 0.0], [t.sin(), t.cos(), 0.0], [0.0, 0.0, 1.0]])
    return pts @ r


def train_step(net, opt, pts, labels, k=6):
    pts = rotate(pts)
    dist = torch.cdist(pts, pts)  # !MG304 dist
    # shuffled clouds: the nearest of each of k strata is as good as kNN and far cheaper
    b, n, _ = dist.shape
    idx = dist.view(b, n, k, n // k).argmin(-1) + torch.arange(k) * (n // k)
    radius = dist.gather(2, idx).mean().item()

    logits = net(pts, idx)
    loss = F.cross_entropy(logits.transpose(1, 2), labels)
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    opt.step()
    return loss.item(), radius


def run():
    torch.manual_seed(3)
    net = DGCNNSeg()
    opt = torch.optim.Adam(net.parameters(), lr=2e-3)
    for it in range(30):
        pts = torch.randn(1, 4200, 3)
        labels = (pts[..., 0] > 0).long() * 4 + (pts[..., 1] > 0).long() * 2 + (pts[..., 2] > 0).long()
        loss, radius = train_step(net, opt, pts, labels)
        if it % 5 == 0:
            print(it, round(loss, 4), round(radius, 4))


run()
