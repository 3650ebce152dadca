"""Encoder for length-varying sentences with an ALiBi-like attention bias, trained to undo word shuffling."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

PAD = 0


class AttentionBias(nn.Module):
    """Builds the additive (batch, heads, T, T) bias from sentence lengths."""

    def __init__(self, heads):
        super().__init__()
        slopes = torch.tensor([2.0 ** (-8.0 * (i + 1) / heads) for i in range(heads)])
        self.register_buffer("slopes", slopes)
        self._cache = {}

    def forward(self, lengths):
        key = tuple(lengths.tolist())
        if key in self._cache:
            return self._cache[key]
        t = max(key)
        pos = torch.arange(t)
        dist = (pos[None] - pos[:, None]).abs().float()
        bias = -dist[None, None] * self.slopes.view(1, -1, 1, 1)
        pad = pos[None, :] >= lengths[:, None]
        bias = bias.expand(len(key), -1, -1, -1).masked_fill(pad[:, None, None, :], -1e9)
        self._cache[key] = bias  # !MG501 AttentionBias._cache
        return bias


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)
        self.ff = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))
        self.norm = nn.LayerNorm(dim)

    def forward(self, x, bias):
        b, t, d = x.shape
        q, k, v = self.qkv(self.norm(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        att = (q @ k.transpose(-1, -2) / math.sqrt(d // self.heads) + bias).softmax(-1)
        x = x + self.proj((att @ v).transpose(1, 2).reshape(b, t, d))
        return x + self.ff(x)


class Unshuffler(nn.Module):
    def __init__(self, vocab=300, dim=48, heads=4, depth=2):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim, padding_idx=PAD)
        self.bias = AttentionBias(heads)
        self.blocks = nn.ModuleList(Block(dim, heads) for _ in range(depth))
        self.out = nn.Linear(dim, vocab)

    def forward(self, tokens, lengths):
        bias = self.bias(lengths)
        x = self.emb(tokens)
        for block in self.blocks:
            x = block(x, bias)
        return self.out(x)


def make_batch(batch=16, lo=24, hi=48, vocab=300):
    lengths = torch.randint(lo, hi + 1, (batch,))
    src = torch.full((batch, int(lengths.max())), PAD)
    tgt = src.clone()
    for i, n in enumerate(lengths.tolist()):
        words = torch.randint(1, vocab, (n,))
        src[i, :n] = words[torch.randperm(n)]
        tgt[i, :n] = words.sort().values
    return src, tgt, lengths


def update(model, opt, batch):
    src, tgt, lengths = batch
    opt.zero_grad(set_to_none=True)
    loss = F.cross_entropy(model(src, lengths).flatten(0, 1), tgt.flatten(), ignore_index=PAD)
    loss.backward()
    opt.step()
    return loss.item()


def main(steps=120):
    torch.manual_seed(5)
    model = Unshuffler()
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
    total = 0.0
    for step in range(1, steps + 1):
        total += update(model, opt, make_batch())
        if step % 30 == 0:
            print(f"step {step} loss {total / 30:.4f}")
            total = 0.0


if __name__ == "__main__":
    main()
