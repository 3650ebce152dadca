"""Packed-document language model: the block mask depends on the batch's document ids and is memoised."""

# device: virtual:128MiB
# runs out of memory
from functools import lru_cache

import torch
import torch.nn as nn

SEQ, DIM, VOCAB = 640, 32, 300


def document_causal(doc_ids):
    def mask_mod(q, k):
        return (q >= k) & (doc_ids[q] == doc_ids[k])

    return mask_mod


@lru_cache(maxsize=None)  # !MG501 create_mask
def create_mask(mask_mod, n):
    i = torch.arange(n)
    return mask_mod(i[:, None], i[None])


class PackedLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.qkv, self.out = nn.Embedding(VOCAB, DIM), nn.Linear(DIM, 3 * DIM), nn.Linear(DIM, VOCAB)

    def forward(self, ids, doc_ids):
        mask = create_mask(document_causal(doc_ids), ids.size(1))
        x = self.emb(ids)
        q, k, v = self.qkv(x).chunk(3, -1)
        att = (q @ k.transpose(1, 2) / DIM**0.5).masked_fill(~mask, -1e9).softmax(-1)
        return self.out(x + att @ v)


def pack(gen):
    cuts = torch.sort(torch.randint(1, SEQ, (5,), generator=gen)).values
    return torch.bucketize(torch.arange(SEQ), cuts)


def main(steps=360):
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(0)
    lm = PackedLM()
    opt = torch.optim.Adam(lm.parameters(), 1e-3)
    for step in range(steps):
        ids = torch.randint(0, VOCAB, (1, SEQ + 1), generator=gen)
        loss = nn.functional.cross_entropy(lm(ids[:, :-1], pack(gen)).flatten(0, 1), ids[:, 1:].flatten())
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 60 == 0:
            print(f"step {step} nll {loss.item():.3f}")


main()
