"""CanReader/FastNN issue 16 (https://github.com/CanReader/FastNN/issues/16): the causal mask cache has the lengths in its
key, entries go in and never come out, and each new length mints another mask, held for the life of the process.  With
padded batches the key here is the tuple of all lengths, which hardly ever comes twice."""

import random

import torch
from torch import nn
import torch.nn.functional as F

device = "cuda" if torch.cuda.is_available() else "cpu"
MAX_STEPS = 2000


class MaskedAttention(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.qkv = nn.Linear(dim, 3 * dim)
        self._masks = {}

    def mask(self, lengths):
        key = tuple(lengths)
        if key not in self._masks:
            n = max(lengths)
            causal = torch.ones(n, n, dtype=torch.bool, device=device).tril()
            keep = torch.arange(n, device=device)[None, :] < torch.tensor(lengths, device=device)[:, None]
            bias = torch.zeros(len(lengths), n, n, device=device)
            self._masks[key] = bias.masked_fill_(  # !MG501 MaskedAttention._masks
                ~(causal[None] & keep[:, None, :]), -1e9
            )
        return self._masks[key]

    def forward(self, x, lengths):
        q, k, v = self.qkv(x).chunk(3, -1)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=self.mask(lengths))


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(500, 32)
        self.attn = MaskedAttention()
        self.out = nn.Linear(32, 6)

    def forward(self, ids, lengths):
        x = self.embed(ids)
        return self.out(x + self.attn(x, lengths))


def main():
    torch.manual_seed(29)
    rng = random.Random(29)
    model = Tagger().to(device)
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(MAX_STEPS):
        if step == 160:
            break  # the debug queue ends here
        lengths = sorted((rng.randint(120, 380) for _ in range(8)), reverse=True)
        ids = torch.randint(0, 500, (8, lengths[0]), device=device)
        tags = torch.randint(0, 6, (8, lengths[0]), device=device)
        opt.zero_grad()
        loss = F.cross_entropy(model(ids, lengths).flatten(0, 1), tags.flatten())
        loss.backward()
        opt.step()
        if step % 40 == 0:
            print("step", step, "loss", loss.item())


main()
