"""Infini-attention language model (Lightning): local attention plus a compressive memory that outlives the segment."""

import lightning.pytorch as pl
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, IterableDataset


class SegmentStream(IterableDataset):
    """Long documents, given segment by segment; `first` tells that a new document begins."""

    def __init__(self, docs=3, segments=30, bs=4, seg_len=48, vocab=64):
        self.docs, self.segments, self.bs, self.seg_len, self.vocab = docs, segments, bs, seg_len, vocab

    def __iter__(self):
        g = torch.Generator().manual_seed(1)
        for _ in range(self.docs):
            base = torch.randint(0, self.vocab, (self.bs, 16), generator=g)
            for s in range(self.segments):
                idx = torch.randint(0, 16, (self.bs, self.seg_len + 1), generator=g).sort(1).values
                yield base.gather(1, idx), s == 0


class InfiniAttention(nn.Module):
    def __init__(self, dim, heads=4):
        super().__init__()
        self.heads, self.hd = heads, dim // heads
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.gate = nn.Parameter(torch.zeros(heads, 1, 1))
        self.M = self.z = None

    def reset(self):
        self.M = self.z = None

    def _retrieve(self, q):
        if self.M is None:
            return torch.zeros_like(q)
        sq = F.elu(q) + 1
        # gradients stay within the segment, what is read from memory counts as constant
        return (sq @ self.M.detach()) / (sq @ self.z.detach().unsqueeze(-1)).clamp(min=1e-4)

    def _update_memory(self, k, v):
        sk = F.elu(k) + 1
        new = sk.transpose(-2, -1) @ v
        self.M = new if self.M is None else self.M + new  # !MG102 InfiniAttention.M
        nz = sk.detach().sum(-2)
        self.z = nz if self.z is None else self.z + nz

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = self.qkv(x).view(B, T, 3, self.heads, self.hd).permute(2, 0, 3, 1, 4)
        local = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        g = torch.sigmoid(self.gate)
        y = g * self._retrieve(q) + (1 - g) * local
        self._update_memory(k, v)
        return self.out(y.transpose(1, 2).reshape(B, T, C))


class InfiniBlock(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.n1, self.n2, self.attn = nn.LayerNorm(dim), nn.LayerNorm(dim), InfiniAttention(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        x = x + self.attn(self.n1(x))
        return x + self.mlp(self.n2(x))


class InfiniLM(pl.LightningModule):
    def __init__(self, vocab=64, dim=96, layers=2, seg_len=48):
        super().__init__()
        self.emb, self.pos = nn.Embedding(vocab, dim), nn.Parameter(torch.zeros(seg_len, dim))
        self.blocks = nn.ModuleList(InfiniBlock(dim) for _ in range(layers))
        self.head = nn.Linear(dim, vocab)

    def forward(self, ids):
        x = self.emb(ids) + self.pos
        for b in self.blocks:
            x = b(x)
        return self.head(x)

    def training_step(self, batch, batch_idx):
        ids, first = batch
        if first:
            for b in self.blocks:
                b.attn.reset()
        logits = self(ids[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        if batch_idx % 15 == 0:
            print(f"segment {batch_idx} loss {loss.item():.3f}")
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=2e-3)


if __name__ == "__main__":
    pl.seed_everything(0)
    trainer = pl.Trainer(
        accelerator="cpu",
        max_epochs=1,
        logger=False,
        enable_progress_bar=False,
        enable_checkpointing=False,
        enable_model_summary=False,
    )
    trainer.fit(InfiniLM(), DataLoader(SegmentStream(), batch_size=None))
