# MG201 by batch 5: each pair is two forwards.
"""Fully convolutional geometric features (dense, here): hardest-contrastive training with hit-ratio validation."""

import logging

import torch
import torch.nn as nn
import torch.nn.functional as F

logging.basicConfig(level=logging.INFO, format="%(message)s")


class FeatNet(nn.Module):
    def __init__(self, dim=32, width=128):
        super().__init__()
        self.point = nn.Sequential(nn.Linear(3, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.fuse = nn.Sequential(nn.Linear(2 * width, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, dim))

    def forward(self, xyz):
        h = self.point(xyz)
        g = h.max(0, keepdim=True)[0].expand_as(h)
        return F.normalize(self.fuse(torch.cat([h, g], 1)), dim=1)


class PairLoader:
    def __init__(self, n_pairs, n_pts, seed):
        self.n_pairs, self.n_pts, self.seed = n_pairs, n_pts, seed

    def __iter__(self):
        g = torch.Generator().manual_seed(self.seed)
        for _ in range(self.n_pairs):
            p = torch.rand(self.n_pts, 3, generator=g)
            q, _ = torch.linalg.qr(torch.randn(3, 3, generator=g))
            yield p, p @ q.T + 0.005 * torch.randn(self.n_pts, 3, generator=g), q


class ContrastiveLossTrainer:
    def __init__(self, model, train_loader, val_loader, max_epoch=2):
        self.model, self.train_loader, self.val_loader = model, train_loader, val_loader
        self.max_epoch = max_epoch
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.8)
        self.best_val = 0

    def train(self):
        for epoch in range(1, self.max_epoch + 1):
            self._train_epoch(epoch)
            val_dict = self._valid_epoch()
            logging.info("epoch %d %s", epoch, val_dict)
            self.best_val = max(self.best_val, val_dict["hit_ratio"])

    def _train_epoch(self, epoch):
        self.model.train()
        for p0, p1, _ in self.train_loader:
            self.optimizer.zero_grad()
            f0, f1 = self.model(p0), self.model(p1)
            sel = torch.randperm(len(f0))[:256]
            d = torch.cdist(f0[sel], f1[sel])
            pos = d.diagonal()
            neg = (d + 10 * torch.eye(len(sel))).min(1)[0]
            loss = F.relu(pos - 0.1).pow(2).mean() + F.relu(1.4 - neg).pow(2).mean()
            loss.backward()
            self.optimizer.step()

    def _valid_epoch(self):
        self.model.eval()
        hit, feat_match, n = 0.0, 0.0, 0
        for p0, p1, T_gt in self.val_loader:
            F0 = self.model(p0)  # !MG201 FeatNet
            F1 = self.model(p1)
            nn_idx = torch.cdist(F0[:512], F1).argmin(1)
            err = (p0[:512] @ T_gt.T - p1[nn_idx]).norm(dim=1)
            ratio = (err < 0.1).float().mean().item()
            hit += ratio
            feat_match += float(ratio > 0.05)
            n += 1
        return {"hit_ratio": round(hit / n, 4), "feat_match_ratio": feat_match / n}


if __name__ == "__main__":
    torch.manual_seed(0)
    ContrastiveLossTrainer(FeatNet(), PairLoader(40, 1500, 1), PairLoader(30, 2500, 2)).train()
