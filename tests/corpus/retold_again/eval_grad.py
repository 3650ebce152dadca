# device: virtual:256MiB
"""Validation that calls eval() and takes that for no_grad()."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split


class TextCNN(nn.Module):
    def __init__(self, vocab=2000, dim=128):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.convs = nn.ModuleList(nn.Conv1d(dim, 64, k, padding=k // 2) for k in (3, 5, 7))
        self.drop, self.fc = nn.Dropout(0.3), nn.Linear(192, 2)

    def forward(self, x):
        h = self.emb(x).transpose(1, 2)
        h = torch.cat([c(h).relu().amax(-1) for c in self.convs], 1)
        return self.fc(self.drop(h))


def evaluate(model, loader, criterion):
    model.eval()
    losses, hits = [], 0
    for x, y in loader:
        out = model(x)  # !MG201 TextCNN
        losses.append(criterion(out, y).item())
        hits += (out.argmax(1) == y).sum().item()
    return sum(losses) / len(losses), hits


full = TensorDataset(torch.randint(0, 2000, (1600, 64)), torch.randint(0, 2, (1600,)))
train_set, val_set = random_split(full, [960, 640])
model, criterion = TextCNN(), nn.CrossEntropyLoss()
optimizer = torch.optim.Adam(model.parameters())
for epoch in range(3):
    model.train()
    for x, y in DataLoader(train_set, 64, shuffle=True):
        optimizer.zero_grad()
        criterion(model(x), y).backward()
        optimizer.step()
    print(evaluate(model, DataLoader(val_set, 128), criterion))
