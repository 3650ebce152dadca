"""Models of tables, graphs and points."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn


class Recommender(nn.Module):
    """Bags of embeddings and their products."""

    def __init__(self, sparse=True):
        super().__init__()
        self.em = nn.ModuleList(nn.EmbeddingBag(5000, 32, mode="sum", sparse=sparse) for _ in range(8))
        self.b = nn.Sequential(nn.Linear(13, 128), nn.ReLU(), nn.Linear(128, 32), nn.ReLU())
        self.t = nn.Sequential(nn.Linear(36 + 32, 128), nn.ReLU(), nn.Linear(128, 1))

    def forward(self, dn, ids):
        x = self.b(dn)
        z = torch.stack([x] + [e(i) for e, i in zip(self.em, ids, strict=True)], 1)
        p = torch.bmm(z, z.transpose(1, 2))
        li, lj = torch.tril_indices(9, 9, -1, device=dn.device)
        return self.t(torch.cat([x, p[:, li, lj]], 1)).squeeze(1)


class MessagePassing(nn.Module):
    """Messages along edges, gathered by index_add, into GRU cells."""

    def __init__(self, d=64):
        super().__init__()
        self.e = nn.Linear(16, d)
        self.m = nn.ModuleList(nn.Sequential(nn.Linear(2 * d, d), nn.ReLU(), nn.Linear(d, d)) for _ in range(4))
        self.u = nn.ModuleList(nn.GRUCell(d, d) for _ in range(4))
        self.o = nn.Linear(d, 1)

    def forward(self, x, ei, batch):
        h = self.e(x)
        for m, u in zip(self.m, self.u, strict=True):
            msg = m(torch.cat([h[ei[0]], h[ei[1]]], -1))
            agg = torch.zeros_like(h).index_add(0, ei[1], msg.to(h.dtype))
            h = u(agg, h)
        return self.o(
            torch.zeros(32, h.shape[1], device=h.device, dtype=h.dtype).scatter_add(0, batch[:, None].expand_as(h), h)
        )


class PointCloud(nn.Module):
    """A network over unordered points."""

    def __init__(self):
        super().__init__()
        self.c = nn.ModuleList([nn.Conv1d(3, 64, 1), nn.Conv1d(64, 128, 1), nn.Conv1d(128, 512, 1)])
        self.n = nn.ModuleList([nn.BatchNorm1d(64), nn.BatchNorm1d(128), nn.BatchNorm1d(512)])
        self.h = nn.Sequential(nn.Linear(512, 256), nn.BatchNorm1d(256), nn.ReLU(), nn.Dropout(0.3), nn.Linear(256, 40))

    def forward(self, x):
        for c, n in zip(self.c, self.n, strict=True):
            x = F.relu(n(c(x)))
        return self.h(x.max(2)[0])
