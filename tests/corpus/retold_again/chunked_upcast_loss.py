"""Looks like linkedin/Liger-Kernel issue 241 (https://github.com/linkedin/Liger-Kernel/issues/241), logits over a large
vocabulary cast to float32 before the loss.  But, as in EvolvingLMMs-Lab/LongVA PR 19
(https://github.com/EvolvingLMMs-Lab/LongVA/pull/19), they are made chunk by chunk under checkpointing: there is never
more than one small chunk of float32 logits."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

device = "cuda" if torch.cuda.is_available() else "cpu"
VOCAB, CHUNK = 20000, 64


class TinyLM(nn.Module):
    def __init__(self, dim=48):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, dim)
        self.ff = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))
        self.lm_head = nn.Linear(dim, VOCAB, bias=False)

    def hidden(self, ids):
        h = self.embed(ids)
        return h + self.ff(h)

    def chunk_loss(self, h, labels):
        logits = self.lm_head(h)
        logits = logits.float()
        return nn.functional.cross_entropy(logits, labels, reduction="sum")

    def loss(self, ids):
        h = self.hidden(ids[:, :-1]).flatten(0, 1)
        labels = ids[:, 1:].flatten()
        total = 0.0
        for part, target in zip(h.split(CHUNK), labels.split(CHUNK)):
            total = total + checkpoint(self.chunk_loss, part, target, use_reentrant=False)
        return total / len(labels)


def train_step(model, optimizer, ids):
    optimizer.zero_grad()
    loss = model.loss(ids)
    loss.backward()
    optimizer.step()
    return loss.item()


if __name__ == "__main__":
    torch.manual_seed(16)
    model = TinyLM().to(device=device, dtype=torch.bfloat16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(30):
        value = train_step(model, optimizer, torch.randint(0, VOCAB, (4, 65), device=device))
        if step % 10 == 0:
            print("step", step, "loss", value)
