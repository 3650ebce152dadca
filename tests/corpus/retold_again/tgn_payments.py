"""Temporal graph network with a node memory over a stream of payments; each batch of events takes more memory than the last.

Retold from twitter-research/tgn, DGL (PR 2636) and PyG TGN threads: "Trying to backward through the graph a second
time" was got rid of where the memory is read.
"""

from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class Config:
    accounts: int = 6000
    dim: int = 96
    edge_dim: int = 16
    events_per_batch: int = 1024
    batches: int = 70
    lr: float = 1e-3


class TimeEncoder(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.lin = nn.Linear(1, dim)

    def forward(self, dt):
        return torch.cos(self.lin(dt[:, None]))


class NodeMemory(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.time = TimeEncoder(cfg.dim)
        self.gru = nn.GRUCell(2 * cfg.dim + cfg.edge_dim, cfg.dim)
        self.register_buffer("memory", torch.zeros(cfg.accounts, cfg.dim))
        self.register_buffer("last_update", torch.zeros(cfg.accounts))

    def get(self, nodes):
        return self.memory[nodes].detach()

    def update_state(self, nodes, partners, t, feats):
        message = torch.cat((self.get(partners), self.time(t - self.last_update[nodes]), feats), 1)
        new = self.gru(message, self.get(nodes))
        self.memory[nodes] = new  # !MG102 NodeMemory.memory
        self.last_update[nodes] = t


class LinkPredictor(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(3 * dim, dim), nn.ReLU(), nn.Linear(dim, 1))

    def forward(self, src, dst, when):
        return self.mlp(torch.cat((src, dst, when), 1)).squeeze(-1)


class PaymentTGN(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.memory = NodeMemory(cfg)
        self.own = nn.Embedding(cfg.accounts, cfg.dim)
        self.predictor = LinkPredictor(cfg.dim)

    def embed(self, nodes):
        return self.memory.get(nodes) + self.own(nodes)

    def forward(self, src, dst, neg, t):
        when = self.memory.time(t - self.memory.last_update[src])
        h = self.embed(src)
        return self.predictor(h, self.embed(dst), when), self.predictor(h, self.embed(neg), when)


def payments(cfg):
    gen = torch.Generator().manual_seed(21)
    clock = 0.0
    half = cfg.accounts // 2
    for _ in range(cfg.batches):
        src = torch.randperm(half, generator=gen)[: cfg.events_per_batch]
        dst = half + (src * 7 + torch.randint(0, 3, src.shape, generator=gen)) % half
        neg = half + torch.randint(0, half, src.shape, generator=gen)
        t = clock + torch.rand(src.shape, generator=gen).sort().values
        clock += 1.0
        yield src, dst, neg, t, torch.randn(len(src), cfg.edge_dim, generator=gen)


def train_on(model, optimizer, src, dst, neg, t, feats):
    optimizer.zero_grad()
    pos_logit, neg_logit = model(src, dst, neg, t)
    loss = F.softplus(-pos_logit).mean() + F.softplus(neg_logit).mean()
    loss.backward()
    optimizer.step()
    # the memory may see the events only after they were predicted
    model.memory.update_state(src, dst, t, feats)
    model.memory.update_state(dst, src, t, feats)
    return float(loss.detach()), float((pos_logit.detach() > neg_logit.detach()).float().mean())


def main(cfg=Config()):
    torch.manual_seed(2)
    model = PaymentTGN(cfg)
    optimizer = torch.optim.Adam(model.parameters(), lr=cfg.lr)
    for i, events in enumerate(payments(cfg)):
        loss, ranked = train_on(model, optimizer, *events)
        if i % 10 == 9:
            print(f"batch {i + 1}: loss {loss:.3f} ranked right {ranked:.2f}")


if __name__ == "__main__":
    main()
