# device: virtual:64MiB
# runs out of memory
"""Transformer encoder tagger on sentences of very different length, batched by length without padding waste."""

import argparse
import math
import random

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, Sampler


class Sentences(Dataset):
    def __init__(self, n, vocab, seed=0):
        rng = random.Random(seed)
        self.lengths = [min(420, int(rng.lognormvariate(3.6, 0.55)) + 6) for _ in range(n - 6)] + [
            330,
            350,
            370,
            390,
            400,
            420,
        ]
        gen = torch.Generator().manual_seed(seed)
        self.items = [torch.randint(1, vocab, (length,), generator=gen) for length in self.lengths]

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


class LengthOrderedBatches(Sampler):
    def __init__(self, lengths, batch_size):
        order = sorted(range(len(lengths)), key=lengths.__getitem__)
        self.batches = [order[i : i + batch_size] for i in range(0, len(order), batch_size)]  # !MG503 batches

    def __iter__(self):
        return iter(self.batches)

    def __len__(self):
        return len(self.batches)


def collate(items):
    return nn.utils.rnn.pad_sequence(items, batch_first=True)


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(dim, dim * 3), nn.Linear(dim, dim)

    def forward(self, x, pad):
        B, T, D = x.shape
        q, k, v = self.qkv(x).view(B, T, 3, self.heads, D // self.heads).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) / math.sqrt(D // self.heads)
        weights = scores.masked_fill(pad[:, None, None], -1e4).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).reshape(B, T, D))


class Tagger(nn.Module):
    def __init__(self, vocab, n_tags, dim=48, heads=4, layers=3):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim, padding_idx=0)
        self.attn = nn.ModuleList([Attention(dim, heads) for _ in range(layers)])
        self.norm = nn.ModuleList([nn.LayerNorm(dim) for _ in range(layers)])
        self.head = nn.Linear(dim, n_tags)

    def forward(self, tokens):
        pad = tokens == 0
        h = self.embed(tokens)
        for attn, norm in zip(self.attn, self.norm):
            h = h + attn(norm(h), pad)
        return self.head(h)


def train_step(model, optimizer, tokens, n_tags):
    optimizer.zero_grad()
    target = torch.where(tokens == 0, -100, tokens % n_tags)
    loss = F.cross_entropy(model(tokens).flatten(0, 1), target.flatten(), ignore_index=-100)
    loss.backward()
    optimizer.step()
    return loss.item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--sentences", type=int, default=480)
    parser.add_argument("--batch-size", type=int, default=6)
    parser.add_argument("--vocab", type=int, default=500)
    args = parser.parse_args()
    torch.manual_seed(0)
    dataset = Sentences(args.sentences, args.vocab)
    loader = DataLoader(
        dataset, batch_sampler=LengthOrderedBatches(dataset.lengths, args.batch_size), collate_fn=collate
    )
    model = Tagger(args.vocab, n_tags=12)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    window = []
    for step, tokens in enumerate(loader, 1):
        window.append(train_step(model, optimizer, tokens, 12))
        if step % 20 == 0:
            print(f"step {step} max len {tokens.shape[1]} loss {sum(window) / len(window):.4f}")
            window.clear()


if __name__ == "__main__":
    main()
