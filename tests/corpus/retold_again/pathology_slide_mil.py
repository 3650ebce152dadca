"""Whole slide classification: a frozen patch encoder fills a feature bank, gated attention pooling is trained on it."""

from collections import defaultdict

import torch
import torch.nn as nn
import torch.nn.functional as F


class PatchEncoder(nn.Module):
    """Small vision transformer, returns the class token followed by the patch tokens."""

    def __init__(self, img=112, patch=8, dim=160, depth=1, heads=4):
        super().__init__()
        self.embed = nn.Conv2d(3, dim, patch, patch)
        self.cls = nn.Parameter(torch.zeros(1, 1, dim))
        self.pos = nn.Parameter(torch.randn(1, (img // patch) ** 2 + 1, dim) * 0.02)
        layer = nn.TransformerEncoderLayer(dim, heads, dim * 2, batch_first=True, norm_first=True, dropout=0.0)
        self.blocks = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.dim = dim

    def forward(self, x):
        x = self.embed(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(len(x), -1, -1), x], 1) + self.pos
        return self.blocks(x)


class SlideReader:
    def __init__(self, n_slides, tiles, img, seed=0):
        self.n_slides, self.tiles, self.img = n_slides, tiles, img
        self.gen = torch.Generator().manual_seed(seed)
        self.labels = torch.arange(n_slides) % 2

    def __iter__(self):
        for s in range(self.n_slides):
            tiles = torch.randn(self.tiles, 3, self.img, self.img, generator=self.gen)
            if self.labels[s]:
                tiles[: self.tiles // 4] += 0.5
            yield s, tiles


class FeatureBank:
    def __init__(self, encoder):
        self.encoder = encoder.eval()
        self.slides = defaultdict(list)

    @torch.no_grad()
    def build(self, reader):
        for slide_id, tiles in reader:
            tokens = self.encoder(tiles)
            self.slides[slide_id].append(tokens[:, 0])  # !MG302 FeatureBank.slides
        return self

    def bag(self, slide_id):
        return torch.cat(self.slides[slide_id])

    def __len__(self):
        return len(self.slides)


class GatedABMIL(nn.Module):
    def __init__(self, dim, hidden=64, n_classes=2):
        super().__init__()
        self.V, self.U, self.w = nn.Linear(dim, hidden), nn.Linear(dim, hidden), nn.Linear(hidden, 1)
        self.head = nn.Linear(dim, n_classes)

    def forward(self, h):
        a = torch.softmax(self.w(torch.tanh(self.V(h)) * torch.sigmoid(self.U(h))), 0)
        return self.head((a * h).sum(0, keepdim=True)), a


class MILTrainer:
    def __init__(self, bank, labels, dim, lr=1e-3):
        self.bank, self.labels = bank, labels
        self.model = GatedABMIL(dim)
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=lr)

    def epoch(self):
        order = torch.randperm(len(self.bank)).tolist()
        total = hit = 0
        for s in order:
            logits, _ = self.model(self.bank.bag(s))
            loss = F.cross_entropy(logits, self.labels[s : s + 1])
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            total += loss.item()
            hit += int(logits.argmax(1) == self.labels[s])
        return total / len(order), hit / len(order)


if __name__ == "__main__":
    torch.manual_seed(0)
    reader = SlideReader(n_slides=40, tiles=32, img=112)
    encoder = PatchEncoder()
    bank = FeatureBank(encoder).build(reader)
    trainer = MILTrainer(bank, reader.labels, encoder.dim)
    for ep in range(6):
        loss, acc = trainer.epoch()
        print(f"epoch {ep}: loss {loss:.4f} acc {acc:.3f}")
