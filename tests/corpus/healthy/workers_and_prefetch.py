"""A DataLoader with two workers, variable lengths, padding, and a progress meter."""

import time

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset


class Sentences(Dataset):
    def __len__(self):
        return 120

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        return torch.randint(1, 50, (5 + i % 20,), generator=g), i % 3


def collate(batch):
    tokens, labels = zip(*batch)
    return pad_sequence(list(tokens), batch_first=True), torch.tensor(labels)


class Bag(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.fc = nn.EmbeddingBag(50, 32, padding_idx=0), nn.Linear(32, 3)

    def forward(self, tokens):
        return self.fc(self.embed(tokens))


if __name__ == "__main__":
    torch.set_num_threads(1)
    model, started, seen = Bag(), time.time(), 0
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.05)
    loader = DataLoader(Sentences(), batch_size=6, shuffle=True, num_workers=2, collate_fn=collate)
    for epoch in range(2):
        for tokens, labels in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(tokens), labels)
            loss.backward()
            optimizer.step()
            seen += len(labels)
        print(f"{seen / (time.time() - started):.0f} samples/s, loss {loss:.3f}")
