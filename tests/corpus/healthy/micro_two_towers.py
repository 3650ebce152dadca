# A contrastive model of two towers: both towers' embeddings of one micro-batch feed one loss, then are gone.
import torch
from torch import nn

torch.manual_seed(0)
image = nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 128))
text = nn.Sequential(nn.Embedding(1000, 64), nn.Flatten(), nn.Linear(64 * 16, 128))
optimizer = torch.optim.AdamW([*image.parameters(), *text.parameters()])
for step in range(6):
    for _ in range(4):
        a = nn.functional.normalize(image(torch.randn(64, 256)), dim=-1)
        b = nn.functional.normalize(text(torch.randint(0, 1000, (64, 16))), dim=-1)
        logits = a @ b.T * 20
        labels = torch.arange(64)
        loss = nn.functional.cross_entropy(logits, labels) + nn.functional.cross_entropy(logits.T, labels)
        (loss / 4).backward()
    optimizer.step()
    optimizer.zero_grad()
