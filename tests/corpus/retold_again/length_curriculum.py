# device: virtual:64MiB
# runs out of memory
"""Attention tagger trained with a length curriculum: short sentences first."""

import torch
import torch.nn as nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset


class Sentences(Dataset):
    def __init__(self, n=480, seed=0):
        g = torch.Generator().manual_seed(seed)
        lengths = (24 + 300 * torch.rand(n, generator=g) ** 3).long().tolist() + [640] * 8
        self.items = [torch.randint(1, 100, (length,), generator=g) for length in sorted(lengths)]

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        tokens = self.items[i]
        return tokens, tokens % 5


def collate(batch):
    tokens, tags = zip(*batch)
    return pad_sequence(tokens, batch_first=True), pad_sequence(tags, batch_first=True, padding_value=-100)


class Tagger(nn.Module):
    def __init__(self, heads=4, dim=32):
        super().__init__()
        self.heads = heads
        self.emb = nn.Embedding(100, dim, padding_idx=0)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, 5)

    def forward(self, tokens):
        b, t = tokens.shape
        q, k, v = self.qkv(self.emb(tokens)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        attn = (q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5).softmax(-1)
        return self.out((attn @ v).transpose(1, 2).reshape(b, t, -1))


def fit(model, loader, epochs=1):
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    criterion = nn.CrossEntropyLoss(ignore_index=-100)

    def step(tokens, tags):
        optimizer.zero_grad()
        loss = criterion(model(tokens).flatten(0, 1), tags.flatten())
        loss.backward()
        optimizer.step()
        return loss.item()

    for epoch in range(epochs):
        for i, (tokens, tags) in enumerate(loader):
            loss = step(tokens, tags)
            if i % 15 == 0:
                print(f"epoch {epoch} batch {i:3d} length {tokens.shape[1]:3d} loss {loss:.3f}")


if __name__ == "__main__":
    torch.manual_seed(0)
    loader = DataLoader(Sentences(), batch_size=8, shuffle=False, collate_fn=collate)  # !MG503 loader
    fit(Tagger(), loader)
