"""Document classification with full self-attention over documents of very different lengths."""

# device: virtual:64MiB
# runs out of memory
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

VOCAB, CLASSES = 500, 4


class Documents(Dataset):
    """Archive in order of arrival; documents became longer over the years."""

    def __init__(self, n=640, shortest=16, longest=420, seed=0):
        g = torch.Generator().manual_seed(seed)
        self.docs, self.labels = [], []
        for i in range(n):
            length = int(shortest * (longest / shortest) ** (i / (n - 1)))
            label = torch.randint(CLASSES, (1,), generator=g).item()
            self.docs.append(1 + (torch.randint(VOCAB // CLASSES - 1, (length,), generator=g) * CLASSES + label))
            self.labels.append(label)

    def __len__(self):
        return len(self.docs)

    def __getitem__(self, i):
        return self.docs[i], self.labels[i]


def collate(items):
    docs, labels = zip(*items)
    ids = pad_sequence(docs, batch_first=True)
    return ids, torch.tensor(labels)


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x, pad):
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-1, -2) / (d // self.heads) ** 0.5
        weights = scores.masked_fill(pad[:, None, None, :], float("-inf")).softmax(-1)
        return x + self.out((weights @ v).transpose(1, 2).reshape(b, t, d))


class Classifier(nn.Module):
    def __init__(self, dim=32, heads=2):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, dim, padding_idx=0)
        self.att = nn.ModuleList(Attention(dim, heads) for _ in range(2))
        self.fc = nn.Linear(dim, CLASSES)

    def forward(self, ids):
        pad, x = ids == 0, self.emb(ids)
        for att in self.att:
            x = att(x, pad)
        return self.fc(x.masked_fill(pad[..., None], 0).sum(1) / (~pad).sum(1, keepdim=True))


def train_step(model, opt, ids, labels):
    opt.zero_grad()
    logits = model(ids)
    loss = F.cross_entropy(logits, labels)
    loss.backward()
    opt.step()
    return loss.item(), (logits.argmax(1) == labels).float().mean().item()


def main():
    torch.manual_seed(0)
    loader = DataLoader(Documents(), batch_size=16, collate_fn=collate)  # !MG503 loader
    model = Classifier()
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    for i, (ids, labels) in enumerate(loader):
        loss, acc = train_step(model, opt, ids, labels)
        if i % 5 == 0:
            print(f"batch {i} tokens {ids.size(1)} loss {loss:.4f} acc {acc:.2f}")


if __name__ == "__main__":
    main()
