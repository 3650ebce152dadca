"""Policy optimisation engine with micro batches and clipped ratios."""

from dataclasses import dataclass, field

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class EngineConfig:
    micro_batch: int = 8
    grad_accum: int = 2
    steps: int = 45
    clip_eps: float = 0.2
    vocab: int = 400
    hidden: int = 96


@dataclass
class StepReport:
    step: int
    loss: float
    extra: dict = field(default_factory=dict)


class TinyPolicy(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.emb = nn.Embedding(cfg.vocab, cfg.hidden)
        self.layer = nn.TransformerEncoderLayer(cfg.hidden, 4, 192, dropout=0.0, batch_first=True)
        self.head = nn.Linear(cfg.hidden, cfg.vocab)

    def logprob(self, tokens):
        h = self.layer(self.emb(tokens[:, :-1]))
        return self.head(h).log_softmax(-1).gather(-1, tokens[:, 1:, None]).squeeze(-1)


class TrainEngine:
    def __init__(self, cfg):
        self.cfg, self.model = cfg, TinyPolicy(cfg)
        self.opt = torch.optim.AdamW(self.model.parameters(), 3e-4)
        self.global_step = 0

    def micro_loss(self, tokens, adv, old):
        ratio = (self.model.logprob(tokens) - old).exp()
        unclipped, clipped = ratio * adv, ratio.clamp(1 - self.cfg.clip_eps, 1 + self.cfg.clip_eps) * adv
        return -torch.min(unclipped, clipped).mean()

    def _cleanup(self, stepped):
        if stepped:
            torch.cuda.empty_cache()  # !MG403 -

    def train_batch(self, batch):
        total = 0.0
        for i, (tokens, adv) in enumerate(batch, 1):
            with torch.no_grad():
                old = self.model.logprob(tokens)
            loss = self.micro_loss(tokens, adv, old) / self.cfg.grad_accum
            loss.backward()
            total += loss.item()
            stepped = i % self.cfg.grad_accum == 0
            if stepped:
                self.opt.step()
                self.opt.zero_grad()
                self.global_step += 1
            self._cleanup(stepped)
        return StepReport(self.global_step, total, {"tokens": tokens.numel()})


def rollouts(cfg):
    g = torch.Generator().manual_seed(515)
    for _ in range(cfg.steps):
        yield [
            (torch.randint(cfg.vocab, (cfg.micro_batch, 24), generator=g), torch.randn(cfg.micro_batch, 1, generator=g))
            for _ in range(cfg.grad_accum)
        ]


if __name__ == "__main__":
    torch.manual_seed(0)
    cfg = EngineConfig()
    engine = TrainEngine(cfg)
    for batch in rollouts(cfg):
        rep = engine.train_batch(batch)
        if rep.step % 15 == 0:
            print(rep)
