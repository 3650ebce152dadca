# A contrastive loss whose bank of representations is renewed micro-batch by micro-batch.
import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
encoder = nn.Sequential(nn.Linear(128, 512), nn.ReLU(), nn.Linear(512, 512))
optimizer = torch.optim.AdamW(encoder.parameters())
for step in range(4):
    chunks = torch.randn(768, 128).chunk(8)
    with torch.no_grad():
        bank = [encoder(chunk) for chunk in chunks]
    for index, chunk in enumerate(chunks):
        mine = encoder(chunk)
        keys = torch.cat([mine if i == index else other for i, other in enumerate(bank)])
        scores = F.normalize(mine, dim=-1) @ F.normalize(keys, dim=-1).T / 0.1
        loss = F.cross_entropy(scores, torch.arange(len(mine)) + index * len(mine)) / 8
        loss.backward()
        bank[index] = mine.detach()
    optimizer.step()
    optimizer.zero_grad()
    print(step, loss.item())
