"""Keeps the [CLS] vector of each sequence, and with it the whole hidden state."""

# device: virtual:256MiB
import torch
from torch import nn

encoder = nn.TransformerEncoder(
    nn.TransformerEncoderLayer(64, 2, 64, batch_first=True, dropout=0.0), 1, enable_nested_tensor=False
)
optimizer = torch.optim.SGD(encoder.parameters(), lr=1e-3)
cls_vectors = []
for step in range(24):
    tokens = torch.randn(4, 128, 64)
    hidden = encoder(tokens)
    loss = hidden.pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    cls_vectors.append(hidden.detach()[:, 0])  # !MG302 cls_vectors
