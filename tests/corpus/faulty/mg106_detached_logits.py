# Detached logits of all micro-batches wait for a metric that is computed after the step.
# device: virtual:1GiB
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Embedding(4000, 32), nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 4000))
optimizer = torch.optim.AdamW(model.parameters())
for step in range(4):
    kept = []
    for _ in range(8):
        ids = torch.randint(0, 4000, (2, 64))
        logits = model(ids)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), ids.flatten()) / 8
        loss.backward()
        kept.append(logits.detach())  # !MG106 kept
    optimizer.step()
    optimizer.zero_grad()
    print(step, torch.cat(kept).softmax(-1).amax(-1).mean().item())
