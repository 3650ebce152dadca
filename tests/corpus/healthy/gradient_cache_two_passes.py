# A contrastive loss over a large batch: representations first without a graph, then chunk by chunk with their gradient.
import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
encoder = nn.Sequential(nn.Linear(128, 512), nn.ReLU(), nn.Linear(512, 256))
optimizer = torch.optim.AdamW(encoder.parameters(), lr=1e-3)
for step in range(6):
    left, right = torch.randn(512, 128).chunk(8), torch.randn(512, 128).chunk(8)
    with torch.no_grad():
        cached = [torch.cat([encoder(chunk) for chunk in side]).requires_grad_() for side in (left, right)]
    scores = F.normalize(cached[0], dim=-1) @ F.normalize(cached[1], dim=-1).T / 0.05
    loss = F.cross_entropy(scores, torch.arange(512))
    loss.backward()
    for side, cache in ((left, cached[0]), (right, cached[1])):
        for chunk, gradient in zip(side, cache.grad.chunk(8), strict=True):
            surrogate = (encoder(chunk) * gradient).sum()
            surrogate.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(step, round(loss.item(), 4))
