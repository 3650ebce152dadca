"""Train a sequence scorer with a curriculum from short to long documents."""

# device: virtual:64MiB
# runs out of memory
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler


class Documents(Dataset):
    def __init__(self, n=480, seed=0):
        g = torch.Generator().manual_seed(seed)
        lengths = torch.randint(24, 120, (n,), generator=g)
        lengths[-8:] = torch.tensor([700, 760, 820, 860, 900, 920, 940, 960])
        self.docs = [torch.randint(1, 300, (int(l),), generator=g) for l in lengths]

    def __len__(self):
        return len(self.docs)

    def __getitem__(self, i):
        return self.docs[i]


class CurriculumBatches(Sampler):
    """Batches of neighbouring lengths, shortest documents first."""

    def __init__(self, dataset, batch_size):
        self.order = sorted(range(len(dataset)), key=lambda i: len(dataset[i]))
        self.batch_size = batch_size

    def __iter__(self):
        for start in range(0, len(self.order), self.batch_size):
            yield self.order[start : start + self.batch_size]  # !MG503 CurriculumBatches

    def __len__(self):
        return (len(self.order) + self.batch_size - 1) // self.batch_size


class Scorer(nn.Module):
    def __init__(self, dim=32, heads=2):
        super().__init__()
        self.heads = heads
        self.embed = nn.Embedding(300, dim, padding_idx=0)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.score = nn.Linear(dim, 1)

    def forward(self, tokens):
        x = self.embed(tokens)
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        weights = (q @ k.transpose(-1, -2) / (d // self.heads) ** 0.5).softmax(-1)
        x = x + (weights @ v).transpose(1, 2).reshape(b, t, d)
        return self.score(x.mean(1)).squeeze(-1)


def collate(docs):
    tokens = nn.utils.rnn.pad_sequence(docs, batch_first=True)
    target = torch.stack([(d < 150).float().mean() for d in docs])
    return tokens, target


def train_step(model, optimizer, tokens, target):
    optimizer.zero_grad()
    loss = F.mse_loss(model(tokens), target)
    loss.backward()
    optimizer.step()
    return loss.item()


def main():
    torch.manual_seed(0)
    data = Documents()
    loader = DataLoader(data, batch_sampler=CurriculumBatches(data, batch_size=8), collate_fn=collate)
    model = Scorer()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step, (tokens, target) in enumerate(loader, 1):
        loss = train_step(model, optimizer, tokens, target)
        if step % 10 == 0:
            print(f"step {step}/{len(loader)} length {tokens.shape[1]} loss {loss:.4f}")


if __name__ == "__main__":
    main()
