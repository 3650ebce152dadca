"""Probing a language model: hidden states of every layer of every batch, on the device."""

import torch
from torch import nn

layers = nn.ModuleList(nn.TransformerEncoderLayer(32, 2, 64, batch_first=True) for _ in range(3)).eval()
embedding = nn.Embedding(100, 32)
hidden = {i: [] for i in range(len(layers))}
with torch.no_grad():
    for batch in range(30):
        h = embedding(torch.randint(100, (8, 32)))
        for i, layer in enumerate(layers):
            h = layer(h)
            hidden[i].append(h)  # !MG301 hidden
features = {i: torch.cat(v).mean(1) for i, v in hidden.items()}
