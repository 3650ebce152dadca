import argparse
import math
import torch
import torch.nn as nn
import torch.nn.functional as F


class CausalMixer(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.norm = nn.LayerNorm(d)
        self.conv = nn.Conv1d(d, d, 4, groups=d, padding=3)
        self.proj = nn.Linear(d, d)

    def forward(self, x):
        h = self.norm(x).transpose(1, 2)
        h = self.conv(h)[..., : x.shape[1]].transpose(1, 2)
        return x + self.proj(F.silu(h))


class TinyLM(nn.Module):
    def __init__(self, vocab, d=48, layers=2):
        super().__init__()
        self.wte = nn.Embedding(vocab, d)
        self.blocks = nn.ModuleList([CausalMixer(d) for _ in range(layers)])
        self.lm_head = nn.Linear(d, vocab, bias=False)
        self.lm_head.weight = self.wte.weight

    def forward(self, idx):
        x = self.wte(idx)
        for b in self.blocks:
            x = b(x)
        return self.lm_head(x)


def compute_loss(logits, labels):
    # cross entropy wants fp32 for stability
    logits = logits.float()  # !MG310 logits
    shift_logits = logits[:, :-1].reshape(-1, logits.size(-1))
    shift_labels = labels[:, 1:].reshape(-1)
    return F.cross_entropy(shift_logits, shift_labels)


def training_step(model, optimizer, ids):
    optimizer.zero_grad(set_to_none=True)
    loss = compute_loss(model(ids), ids)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return loss.item()


def lr_at(step, total, base):
    return base * 0.5 * (1 + math.cos(math.pi * step / total))


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--vocab", type=int, default=6000)
    ap.add_argument("--batch", type=int, default=4)
    ap.add_argument("--ctx", type=int, default=64)
    ap.add_argument("--steps", type=int, default=36)
    a = ap.parse_args()
    torch.manual_seed(0)
    model = TinyLM(a.vocab).to(torch.bfloat16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    tokens_seen = 0
    for step in range(a.steps):
        for g in optimizer.param_groups:
            g["lr"] = lr_at(step, a.steps, 0.1)
        ids = torch.randint(0, a.vocab, (a.batch, a.ctx))
        loss = training_step(model, optimizer, ids)
        tokens_seen += ids.numel()
        if step % 9 == 0:
            print(f"{tokens_seen:>8d} tok | loss {loss:.3f} | ppl {math.exp(min(loss, 20)):.0f}")
