"""Document ranking with batches sorted by length, crashes at 90 percent of the epoch (discuss.pytorch.org: out of memory after hours, variable sequence length)."""

# device: virtual:128MiB
# runs out of memory
# !MG402 -
import torch
import torch.nn as nn

VOCAB, DIM, HEADS, BATCH = 2000, 64, 4, 4


class SelfAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(DIM, 3 * DIM)
        self.out = nn.Linear(DIM, DIM)

    def forward(self, x, pad):
        b, t, _ = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, HEADS, DIM // HEADS).permute(2, 0, 3, 1, 4)
        score = q @ k.transpose(-1, -2) / 4.0
        weights = score.masked_fill(pad[:, None, None, :], -1e9).softmax(-1)
        return x + self.out((weights @ v).transpose(1, 2).reshape(b, t, DIM))


class Ranker(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, DIM, padding_idx=0)
        self.attn = SelfAttention()
        self.score = nn.Linear(DIM, 1)

    def forward(self, ids):
        pad = ids == 0
        h = self.attn(self.emb(ids), pad)
        h = h.masked_fill(pad.unsqueeze(-1), 0).sum(1) / (~pad).sum(1, keepdim=True)
        return self.score(h).squeeze(1)


class Documents:
    def __init__(self, n, seed=150):
        gen = torch.Generator().manual_seed(seed)
        lengths = (48 + 900 * torch.rand(n, generator=gen) ** 2).long()
        self.docs = [torch.randint(1, VOCAB, (int(k),), generator=gen) for k in lengths]

    def batches(self):
        """Similar lengths together: no padding wasted, shortest first."""
        order = sorted(range(len(self.docs)), key=lambda i: len(self.docs[i]))
        for i in range(0, len(order), BATCH):
            chunk = [self.docs[j] for j in order[i : i + BATCH]]
            yield nn.utils.rnn.pad_sequence(chunk, batch_first=True)


def relevance(ids):
    return (ids % 7 == 3).float().sum(1) / (ids > 0).float().sum(1)


def main():
    torch.manual_seed(151)
    model = Ranker()
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    docs = Documents(280)
    for step, ids in enumerate(docs.batches()):
        loss = (model(ids) - relevance(ids)).pow(2).mean()  # !MG503 -
        loss.backward()
        opt.step()
        opt.zero_grad()
        if step % 20 == 0:
            print(f"step {step} length {ids.size(1)} loss {loss.item():.5f}")


if __name__ == "__main__":
    main()
