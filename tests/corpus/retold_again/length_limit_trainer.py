"""Sequence tagger trainer which logs and skips over-long batches and splits them for a second attempt."""

import logging
from collections import Counter

import torch
import torch.nn as nn
import torch.nn.functional as F

logging.basicConfig(level=logging.INFO, format="%(message)s")
log = logging.getLogger("tagger")


class Tagger(nn.Module):
    def __init__(self, vocab=300, dim=64, tags=9, max_tokens=900):
        super().__init__()
        self.max_tokens = max_tokens
        self.emb = nn.Embedding(vocab, dim)
        self.conv = nn.Conv1d(dim, dim, 5, padding=2)
        self.rnn = nn.GRU(dim, dim, batch_first=True, bidirectional=True)
        self.out = nn.Linear(2 * dim, tags)

    def forward(self, ids):
        x = F.relu(self.conv(self.emb(ids).transpose(1, 2))).transpose(1, 2)
        if ids.numel() > self.max_tokens:
            raise RuntimeError(f"{ids.numel()} tokens in one batch, limit is {self.max_tokens}")
        return self.out(self.rnn(x)[0])


class Trainer:
    def __init__(self, model):
        self.model = model
        self.opt = torch.optim.Adam(model.parameters(), lr=2e-3)
        self.failures = []
        self.stats = Counter()

    def _accumulate(self, ids, tags, weight):
        loss = F.cross_entropy(self.model(ids).flatten(0, 1), tags.flatten())
        (loss * weight).backward()
        return loss.item()

    def train_step(self, ids, tags):
        self.opt.zero_grad()
        failed = False
        try:
            loss = self._accumulate(ids, tags, 1.0)
        except RuntimeError as e:
            failed = True
            self.failures.append(str(e))
        if failed:
            self.opt.zero_grad()
            parts = list(zip(ids.chunk(2), tags.chunk(2)))
            loss = sum(self._accumulate(i, t, 1 / len(parts)) for i, t in parts) / len(parts)
            self.stats["split"] += 1
        self.opt.step()
        self.stats["updates"] += 1
        return loss


def make_batch(gen, k):
    length = 80 if k % 5 == 0 else int(torch.randint(15, 50, (1,), generator=gen))
    ids = torch.randint(300, (16, length), generator=gen)
    return ids, (ids // 34).clamp(max=8)


@torch.no_grad()
def evaluate(model, gen):
    model.eval()
    hits = total = 0
    for k in range(1, 5):
        ids, tags = make_batch(gen, k)
        hits += (model(ids).argmax(-1) == tags).sum().item()
        total += tags.numel()
    model.train()
    return hits / total


def main():
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(1)
    trainer = Trainer(Tagger())
    for k in range(1, 121):
        loss = trainer.train_step(*make_batch(gen, k))
        if k % 30 == 0:
            log.info("update %d loss %.3f acc %.3f", k, loss, evaluate(trainer.model, gen))
    log.info(
        "%d of %d batches were split: %s",
        trainer.stats["split"],
        trainer.stats["updates"],
        Counter(trainer.failures).most_common(1),
    )


if __name__ == "__main__":
    main()
