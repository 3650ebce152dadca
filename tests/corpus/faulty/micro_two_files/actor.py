import torch
from torch import nn


class Actor:
    """One worker's policy."""

    def __init__(self):
        self.module = nn.Sequential(nn.Embedding(2000, 64), nn.Linear(64, 128), nn.SiLU(), nn.Linear(128, 2000))
        self.optimizer = torch.optim.AdamW(self.module.parameters(), lr=1e-3)

    def _forward_micro_batch(self, ids):
        logits = self.module(ids)
        logp = logits.log_softmax(-1)
        return logp.gather(-1, ids[..., None]).squeeze(-1), logp

    def update_policy(self, data, metrics):
        for ids in data.chunk(6):
            log_prob, full = self._forward_micro_batch(ids)
            (-log_prob.mean() / 6).backward()
            metrics.record("kl", full.exp() * full)
        self.optimizer.step()
        self.optimizer.zero_grad()
