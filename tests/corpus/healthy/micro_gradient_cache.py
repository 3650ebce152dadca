# Gradient caching: embeddings without a graph first, their gradients, then each chunk once more with them.
import torch
from torch import nn

torch.manual_seed(0)
encoder = nn.Sequential(nn.Linear(128, 1024), nn.GELU(), nn.Linear(1024, 64))
optimizer = torch.optim.AdamW(encoder.parameters())
for step in range(6):
    x, z = torch.randn(256, 128), torch.randn(256, 128)
    chunks = [*x.split(32), *z.split(32)]
    with torch.no_grad():
        reps = [encoder(chunk) for chunk in chunks]
    leaf = torch.cat(reps).requires_grad_()
    a, b = leaf.chunk(2)
    nn.functional.cross_entropy(a @ b.T, torch.arange(256)).backward()
    for chunk, gradient in zip(chunks, leaf.grad.split(32)):
        (encoder(chunk) * gradient).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
