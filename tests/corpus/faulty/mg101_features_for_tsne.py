"""Keeps the embedding of every batch for a t-SNE plot after training."""

import torch
from torch import nn


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv1d(1, 8, 5), nn.ReLU(), nn.AdaptiveAvgPool1d(4), nn.Flatten())
        self.head = nn.Linear(32, 4)

    def forward(self, x):
        emb = self.body(x)
        return self.head(emb), emb


@torch.no_grad()
def project(chunks):
    return torch.cat(chunks)[:, :2].numpy()


def run():
    encoder = Encoder()
    optim = torch.optim.Adam(encoder.parameters(), lr=1e-3)
    embeddings, labels = [], []
    for _ in range(24):
        x, y = torch.randn(8, 1, 32), torch.randint(0, 4, (8,))
        logits, emb = encoder(x)
        loss = nn.functional.cross_entropy(logits, y)
        optim.zero_grad()
        loss.backward()
        optim.step()
        embeddings.append(emb)  # !MG101 embeddings
        labels.append(y)
    return project(embeddings), torch.cat(labels)


run()
